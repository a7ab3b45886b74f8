"""Configuration: YAML files and command-line values, typed and checked. Never connects to anything."""

from moetop.config.hosts import HostSpec, expand_hosts, parse_host
from moetop.config.loading import Config, Overrides, load_config, merge, read_config
from moetop.config.schema import Command, LogSpec, ServerMatch, ServerSpec, Settings, Timeouts, TransportKind
from moetop.places import config_path as default_path

__all__ = [
    "Command",
    "Config",
    "HostSpec",
    "LogSpec",
    "Overrides",
    "ServerMatch",
    "ServerSpec",
    "Settings",
    "Timeouts",
    "TransportKind",
    "default_path",
    "expand_hosts",
    "load_config",
    "merge",
    "parse_host",
    "read_config",
]
