"""All-reduces on one's own machines: `torchrun ... -m netfold.bench` compares Netfold with Gloo and NCCL.

See docs/how-to/measure-your-machines.md.
"""
