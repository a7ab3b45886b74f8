"""Writers of snapshots: json, csv, md, svg. Never reach a host; load `textual` or `plotext` only where they must."""
