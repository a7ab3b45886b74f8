"""The built-in fleet: a scripted server beside a recorded H200. Needs no GPU and no network; never varies."""

from moetop.demo.fleet import RECORDED, SCRIPTED, transports

__all__ = ["RECORDED", "SCRIPTED", "transports"]
