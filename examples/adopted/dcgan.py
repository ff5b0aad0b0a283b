"""A generative adversarial network, as pytorch/examples/dcgan trains it: two networks and two optimisers, in turn.
Normalisation is over groups, which does not depend on how a batch is cut."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOISE = 6


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        first = nn.ConvTranspose2d(NOISE, 8, 4), nn.GroupNorm(2, 8), nn.ReLU()
        self.main = nn.Sequential(*first, nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh())

    def forward(self, noise):
        return self.main(noise.view(-1, NOISE, 1, 1))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        first = nn.Conv2d(1, 8, 4, 2, 1), nn.GroupNorm(2, 8), nn.LeakyReLU(0.2)
        self.main = nn.Sequential(*first, nn.Conv2d(8, 1, 4), nn.Sigmoid())

    def forward(self, images):
        return self.main(images).view(-1)


def draw(images):
    return torch.randn(len(images), NOISE)


def main(epochs=2):
    torch.manual_seed(0)
    images = torch.tensor(load_digits().images[:96] / 8 - 1, dtype=torch.float32).unsqueeze(1)
    loader = DataLoader(TensorDataset(images), batch_size=32, shuffle=True)
    netG, netD = Generator(), Discriminator()
    criterion = nn.BCELoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=0.002, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=0.002, betas=(0.5, 0.999))
    losses = []
    for epoch in range(epochs):
        for (real,) in loader:
            # the discriminator: real pictures are real, made ones are not
            netD.zero_grad()
            errD_real = criterion(netD(real), torch.ones(len(real)))
            errD_real.backward()
            fake = netG(draw(real))
            errD_fake = criterion(netD(fake.detach()), torch.zeros(len(real)))
            errD_fake.backward()
            errD = errD_real + errD_fake
            optimizerD.step()
            # the generator: made ones should be taken for real
            netG.zero_grad()
            errG = criterion(netD(fake), torch.ones(len(real)))
            errG.backward()
            optimizerG.step()
            losses += [errD.item(), errG.item()]
        print(f"epoch {epoch}: Loss_D {errD.item():.4f}, Loss_G {errG.item():.4f}")
    return losses, nn.ModuleList([netG, netD])


if __name__ == "__main__":
    main()
