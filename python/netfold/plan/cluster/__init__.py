"""A cluster, from a file to a graph of all that can be full: links, cards, PCIe, sockets, folding switches."""
