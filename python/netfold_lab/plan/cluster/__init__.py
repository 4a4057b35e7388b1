"""A cluster, from a file to a graph of all resources with a capacity: links, NICs, PCIe, sockets, folding switches."""
