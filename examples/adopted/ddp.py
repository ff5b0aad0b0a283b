"""The tutorial of DistributedDataParallel: a toy model, a process group, a sampler of the own rank.

Run alone, it is rank 0 of 1."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.relu, self.net2 = nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def main(epochs=2):
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    alone = {"store": dist.HashStore()} if world == 1 else {}
    dist.init_process_group("gloo", rank=rank, world_size=world, **alone)
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(80, 10), torch.randn(80, 5))
    sampler = DistributedSampler(dataset, world, rank)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    model = ToyModel()
    ddp_model = DDP(model)
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            outputs = ddp_model(inputs)
            loss = loss_fn(outputs, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"rank {rank}, epoch {epoch}: loss {losses[-1]:.4f}")
    dist.destroy_process_group()
    return losses, model


if __name__ == "__main__":
    main()
