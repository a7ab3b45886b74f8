"""The Textual app: screens, widgets, themes. Reads a WatchFeed and calls Actions; touches no wire."""
