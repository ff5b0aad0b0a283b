"""Node classification, as PyTorch Geometric's first example does it on a citation graph: two graph convolutions over all
nodes, and a loss of those whose labels are known. Messages are passed in plain torch."""

import torch
from torch import nn
from torch.nn import functional

NODES, FEATURES, CLASSES = 60, 8, 3


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin = nn.Linear(inputs, outputs)

    def forward(self, x, edges, norm):
        """The mean over neighbours, by degree."""
        source, target = edges
        return torch.zeros(len(x), self.lin.out_features).index_add(0, target, norm[:, None] * self.lin(x)[source])


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = Convolution(FEATURES, 16), Convolution(16, CLASSES)

    def forward(self, x, edges):
        degree = torch.bincount(edges[1], minlength=len(x)).clamp(min=1).float()
        norm = (degree[edges[0]] * degree[edges[1]]).rsqrt()
        x = functional.relu(self.conv1(x, edges, norm))
        return functional.log_softmax(self.conv2(x, edges, norm), dim=1)


def graph():
    """Nodes of a class are mostly joined to each other."""
    y = torch.arange(NODES) % CLASSES
    x = functional.one_hot(y, FEATURES).float() + torch.randn(NODES, FEATURES)
    near = torch.stack([torch.arange(NODES), (torch.arange(NODES) + CLASSES) % NODES])
    loops = torch.arange(NODES).expand(2, -1)
    return x, torch.cat([near, near.flip(0), loops], dim=1), y, torch.arange(NODES) < NODES // 2


def main(epochs=6):
    torch.manual_seed(0)
    x, edges, y, train_mask = graph()
    model = GCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    for epoch in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(x, edges)
        loss = functional.nll_loss(out[train_mask], y[train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    right = model(x, edges).argmax(dim=1) == y
    print(f"accuracy {right[~train_mask].float().mean():.3f}")
    return losses, model


if __name__ == "__main__":
    main()
