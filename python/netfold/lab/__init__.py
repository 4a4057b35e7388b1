"""Emulated clusters on one machine: network namespaces, veth pairs, shaped links, faults to order.

`spec` says what a lab is, `names` what its parts are called, `cluster` builds it and takes it away, `shaping` and
`faults` act on its links, `state` remembers it on disk, `processes` ends what ran in it, `userns` does without root.
"""
