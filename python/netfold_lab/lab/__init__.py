"""Emulated clusters on one machine: network namespaces, veth pairs, shaped links, adjustable faults.

`spec` describes a lab, `names` has the names of its parts, `cluster` builds and removes it, `shaping` and `faults` act
on its links, `state` keeps it on disk, `processes` ends the processes in it, and `userns` works without root.
"""
