"""A word language model, as pytorch/examples/word_language_model trains it: an LSTM whose state is carried from window to
window of several streams of text, and cut off from the gradient there."""

import torch
from torch import nn

WORDS, WIDTH, STREAMS, WINDOW = 20, 12, 8, 5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(WORDS, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, 2)
        self.decoder = nn.Linear(WIDTH, WORDS)

    def forward(self, words, hidden):
        output, hidden = self.rnn(self.encoder(words), hidden)
        return self.decoder(output), hidden

    def init_hidden(self):
        return torch.zeros(2, STREAMS, WIDTH), torch.zeros(2, STREAMS, WIDTH)


def windows(text):
    """(window, stream) of words, and what follows each."""
    columns = text.view(STREAMS, -1).t()
    for begin in range(0, len(columns) - WINDOW, WINDOW):
        yield columns[begin : begin + WINDOW], columns[begin + 1 : begin + WINDOW + 1]


def main(epochs=2):
    torch.manual_seed(0)
    text = torch.arange(STREAMS * 21) * 7 % WORDS
    model, criterion = Model(), nn.CrossEntropyLoss()
    losses = []
    for epoch in range(epochs):
        hidden = model.init_hidden()
        for data, targets in windows(text):
            model.zero_grad()
            hidden = tuple(state.detach() for state in hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output.view(-1, WORDS), targets.reshape(-1))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-5.0)
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    return losses, model


if __name__ == "__main__":
    main()
