"""A recommender: embeddings of users and films, and a small network that says how the one rates the other, as in tutorials on
MovieLens. Ratings are made up."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

USERS, FILMS, WIDTH = 30, 40, 8


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.film = nn.Embedding(USERS, WIDTH), nn.Embedding(FILMS, WIDTH)
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user, film):
        return self.head(torch.cat([self.user(user), self.film(film)], dim=1)).squeeze(1)


def main(epochs=2):
    torch.manual_seed(0)
    user, film = torch.randint(0, USERS, (200,)), torch.randint(0, FILMS, (200,))
    rating = 3 + torch.sin(user + 0.5 * film)
    loader = DataLoader(TensorDataset(user, film, rating), batch_size=64, shuffle=True, drop_last=True)
    model = Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for epoch in range(epochs):
        for user, film, rating in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(user, film), rating)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    return losses, model


if __name__ == "__main__":
    main()
