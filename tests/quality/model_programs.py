"""Programs as people write them: a model, a loss, an optimizer and a loop; written without a look at what records them."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from ci_autotest import autotest, index_tensor, random_tensor


class Backbone(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.conv(x)), 0.1)


class YoloHead(nn.Module):
    def __init__(self, channels, anchors, classes):
        super().__init__()
        self.classes = classes
        self.register_buffer("anchors", torch.tensor(anchors))
        self.conv = nn.Conv2d(channels, len(anchors) * (5 + classes), 1)

    def forward(self, x):
        batch, _, height, width = x.shape
        x = self.conv(x).view(batch, len(self.anchors), 5 + self.classes, height, width)
        x = x.permute(0, 1, 3, 4, 2).contiguous()
        ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack((xs, ys), dim=-1).float()
        xy = (x[..., 0:2].sigmoid() + grid) / max(height, width)
        wh = torch.exp(x[..., 2:4].clamp(max=4)) * self.anchors[None, :, None, None, :]
        return xy, wh, x[..., 4], x[..., 5:]


@autotest(n=2)
def detection_loss():
    images = random_tensor(4, 2, 3, 8, 8, requires_grad=False)
    model = nn.Sequential(Backbone(4), YoloHead(4, [[0.2, 0.3], [0.5, 0.4]], 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    target = torch.zeros(2, 2, 4, 4)
    target[0, 1, 2, 3] = 1.0
    target[1, 0, 0, 1] = 1.0
    for _ in range(2):
        xy, wh, objectness, classes = model(images)
        mask = target > 0
        box_loss = F.mse_loss(xy[mask], torch.full_like(xy[mask], 0.5)) + F.mse_loss(
            wh[mask], torch.ones_like(wh[mask])
        )
        object_loss = F.binary_cross_entropy_with_logits(objectness, target, pos_weight=torch.tensor(3.0))
        class_loss = F.cross_entropy(classes[mask], torch.tensor([1, 2]))
        loss = 5.0 * box_loss + object_loss + class_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def box_iou(a, b):
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    left_top = torch.max(a[:, None, :2], b[None, :, :2])
    right_bottom = torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (right_bottom - left_top).clamp(min=0).prod(dim=2)
    return inter / (area_a[:, None] + area_b[None, :] - inter + 1e-7)


@torch.no_grad()
def nms(boxes, scores, threshold):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        best = order[0]
        keep.append(best)
        if order.numel() == 1:
            break
        iou = box_iou(boxes[best].unsqueeze(0), boxes[order[1:]])[0]
        order = order[1:][iou <= threshold]
    return torch.stack(keep)


@autotest(n=3)
def non_maximum_suppression():
    corners = random_tensor(2, 6, 2, low=0, high=8, requires_grad=False)
    sizes = random_tensor(2, 6, 2, low=1, high=6, requires_grad=False)
    scores = random_tensor(1, 6, low=0, high=1, requires_grad=False)
    boxes = torch.cat([corners, corners + sizes], dim=1)
    confident = scores > 0.1
    boxes, scores = boxes[confident], scores[confident]
    if len(scores) == 0:
        return boxes
    keep = nms(boxes, scores, threshold=0.3)
    return boxes[keep], scores[keep]


class DoubleConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.GroupNorm(2, outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.layers(x)


class UNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down = DoubleConv(1, 4)
        self.bottom = DoubleConv(4, 8)
        self.up = DoubleConv(12, 4)
        self.head = nn.Conv2d(4, classes, 1)

    def forward(self, x):
        skip = self.down(x)
        x = self.bottom(F.max_pool2d(skip, 2))
        x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=True)
        return self.head(self.up(torch.cat([skip, x], dim=1)))


@autotest(n=2)
def unet_segmentation():
    images = random_tensor(4, 2, 1, 9, 10, requires_grad=False)
    labels = index_tensor(3, dims=[2, 9, 10])
    model = UNet(classes=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = F.cross_entropy(model(images), labels, ignore_index=2)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    return loss, model(images).argmax(dim=1)


class DiceLoss(nn.Module):
    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits, labels):
        classes = logits.size(1)
        probabilities = logits.softmax(dim=1)
        one_hot = F.one_hot(labels, classes).permute(0, 3, 1, 2).float()
        dims = (0, 2, 3)
        intersection = torch.sum(probabilities * one_hot, dim=dims)
        cardinality = torch.sum(probabilities + one_hot, dim=dims)
        return 1 - ((2 * intersection + self.smooth) / (cardinality + self.smooth)).mean()


@autotest(n=3)
def dice_segmentation():
    logits = random_tensor(4, 2, 3, 5, 4)
    labels = index_tensor(3, dims=[2, 5, 4])
    loss = DiceLoss()(logits, labels) + 0.1 * F.cross_entropy(logits, labels, label_smoothing=0.1)
    loss.backward()
    with torch.no_grad():
        predicted = logits.argmax(1)
        confusion = torch.bincount((labels * 3 + predicted).view(-1), minlength=9).view(3, 3).float()
        iou = confusion.diag() / (confusion.sum(0) + confusion.sum(1) - confusion.diag()).clamp(min=1)
    return loss, iou


class CharLSTM(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, state=None):
        x, state = self.lstm(self.embedding(tokens), state)
        return self.head(x), state


@autotest(n=2)
def lstm_truncated_bptt():
    tokens = index_tensor(7, dims=[2, 9])
    model = CharLSTM(7, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    state, losses = None, []
    for start in range(0, 8, 4):
        inputs, targets = tokens[:, start : start + 4], tokens[:, start + 1 : start + 5]
        if state is not None:
            state = tuple(s.detach() for s in state)
        logits, state = model(inputs, state)
        loss = F.cross_entropy(logits.reshape(-1, 7), targets.reshape(-1), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    return torch.stack(losses)


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        batch, time, width = x.size()
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:, :, :time, :time] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(batch, time, width))


class Block(nn.Module):
    def __init__(self, width, heads, approximate):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=11, width=8, approximate="none"):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width, 2, approximate) for _ in range(2))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.2)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets=None):
        position = torch.arange(0, tokens.size(1), device=tokens.device).unsqueeze(0)
        x = self.wte(tokens) + self.wpe(position)
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
        return logits, loss


@autotest(n=2)
def gpt_training():
    tokens = index_tensor(11, dims=[2, 8])
    model = GPT(approximate="tanh")
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for _ in range(2):
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss


@autotest(n=2)
def gpt_nucleus_decoding():
    tokens = index_tensor(11, dims=[1, 3])
    model = GPT().eval()
    with torch.no_grad():
        for _ in range(4):
            logits, _ = model(tokens)
            ordered, places = torch.sort(F.softmax(logits[:, -1, :] / 0.8, dim=-1), descending=True)
            outside = torch.cumsum(ordered, dim=-1) - ordered > 0.6
            nucleus = torch.zeros_like(ordered).scatter(1, places, ordered.masked_fill(outside, 0.0))
            nucleus = nucleus / nucleus.sum(dim=-1, keepdim=True)
            tokens = torch.cat((tokens, nucleus.argmax(-1, keepdim=True)), dim=1)
    return tokens, nucleus


class TextClassifier(nn.Module):
    def __init__(self, vocabulary, width, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        padding = tokens == 0
        x = self.encoder(self.embedding(tokens) * math.sqrt(8), src_key_padding_mask=padding)
        lengths = (~padding).sum(1, keepdim=True).clamp(min=1)
        pooled = x.masked_fill(padding.unsqueeze(-1), 0.0).sum(1) / lengths
        return self.head(torch.tanh(pooled))


@autotest(n=2)
def transformer_text_classifier():
    tokens = index_tensor(9, dims=[3, 5]) + 1
    tokens[:, 4] = 0
    labels = index_tensor(4, dims=[3])
    model = TextClassifier(10, 8, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 2))
    for _ in range(2):
        optimizer.zero_grad()
        logits = model(tokens)
        loss = F.nll_loss(F.log_softmax(logits, dim=-1), labels)
        loss.backward()
        optimizer.step()
        warmup.step()
    accuracy = (logits.argmax(-1) == labels).float().mean()
    return loss, accuracy


class AttentionDecoder(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.cell = nn.GRUCell(2 * width, width)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, token, hidden, memory):
        weights = F.softmax(torch.bmm(memory, hidden.unsqueeze(2)).squeeze(2), dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        hidden = self.cell(torch.cat([self.embedding(token), context], dim=1), hidden)
        return self.out(hidden), hidden


@autotest(n=2)
def seq2seq_translation():
    source = index_tensor(8, dims=[2, 5])
    target = index_tensor(8, dims=[2, 4])
    embedding, encoder, decoder = nn.Embedding(8, 6), nn.GRU(6, 6, batch_first=True), AttentionDecoder(8, 6)
    parameters = [p for module in (embedding, encoder, decoder) for p in module.parameters()]
    optimizer = torch.optim.RMSprop(parameters, lr=1e-3)
    memory, hidden = encoder(embedding(source))
    hidden, token = hidden[-1], torch.zeros(2, dtype=torch.long)
    loss = 0.0
    for t in range(target.shape[1]):
        logits, hidden = decoder(token, hidden, memory)
        loss = loss + F.cross_entropy(logits, target[:, t])
        token = target[:, t] if t % 2 == 0 else logits.argmax(dim=1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def timestep_embedding(t, dim):
    half = dim // 2
    frequencies = torch.exp(-math.log(10000) * torch.arange(half) / half)
    angles = t[:, None].float() * frequencies[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, activation=F.silu):
        super().__init__()
        self.activation = activation
        self.time = nn.Linear(8, 4)
        self.conv_in = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.conv_out = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x, t):
        h = self.conv_in(x) + self.time(timestep_embedding(t, 8))[:, :, None, None]
        return self.conv_out(self.activation(self.norm(h)))


@autotest(n=2)
def ddpm_training():
    x0 = random_tensor(4, 2, 1, 6, 6, requires_grad=False)
    noise = random_tensor(4, 2, 1, 6, 6, requires_grad=False)
    t = index_tensor(20, dims=[2])
    betas = torch.linspace(1e-4, 0.02, 20)
    alpha_bar = torch.cumprod(1.0 - betas, dim=0)
    scale = alpha_bar.gather(0, t).view(-1, 1, 1, 1)
    xt = scale.sqrt() * x0 + (1 - scale).sqrt() * noise
    model = Denoiser(F.relu)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    predicted = model(xt, t)
    loss = F.mse_loss(predicted, noise)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        restored = ((xt - (1 - scale).sqrt() * predicted) * torch.rsqrt(scale)).clamp(-1, 1)
    return loss, restored


@autotest(n=2)
def ddpm_sampling():
    x = random_tensor(4, 1, 1, 6, 6, requires_grad=False)
    betas = torch.linspace(1e-4, 0.02, 5)
    alphas = 1 - betas
    alpha_bar = torch.cumprod(alphas, 0)
    model = Denoiser()
    model.eval()
    with torch.no_grad():
        for step in reversed(range(5)):
            t = torch.full((x.shape[0],), step, dtype=torch.long)
            predicted = model(x, t)
            x = (x - betas[step] / torch.sqrt(1 - alpha_bar[step]) * predicted) / torch.sqrt(alphas[step])
            if step > 0:
                x = x + torch.sqrt(betas[step]) * torch.randn_like(x)
    return ((x.clamp(-1, 1) + 1) * 127.5).to(torch.uint8)


@autotest(n=2)
def gan_step():
    real = random_tensor(2, 4, 6, requires_grad=False)
    latent = random_tensor(2, 4, 3, requires_grad=False)
    generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh())
    discriminator = nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 1), nn.Sigmoid())
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCELoss()
    ones, zeros = torch.ones(4, 1), torch.zeros(4, 1)
    fake = generator(latent)
    optimizer_d.zero_grad()
    loss_d = (criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)) / 2
    loss_d.backward()
    optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g = criterion(discriminator(fake), ones)
    loss_g.backward()
    optimizer_g.step()
    return loss_d, loss_g


@autotest(n=2)
def wgan_gradient_penalty():
    real = random_tensor(2, 4, 5, requires_grad=False)
    fake = random_tensor(2, 4, 5, requires_grad=False)
    weight = random_tensor(2, 4, 1, low=0, high=1, requires_grad=False)
    critic = nn.Sequential(nn.Linear(5, 8), nn.Softplus(beta=2), nn.Linear(8, 1))
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
    mixed = torch.lerp(real, fake, weight).requires_grad_(True)
    scores = critic(mixed)
    (gradient,) = torch.autograd.grad(scores, mixed, grad_outputs=torch.ones_like(scores), create_graph=True)
    penalty = ((gradient.norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    loss.backward()
    optimizer.step()
    for p in critic.parameters():
        p.data.clamp_(-0.5, 0.5)
    return loss


class QNetwork(nn.Module):
    def __init__(self, observations=4, actions=3):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(observations, 8), nn.ReLU())
        self.value, self.advantage = nn.Linear(8, 1), nn.Linear(8, actions)

    def forward(self, x):
        x = self.features(x)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=1, keepdim=True)


@autotest(n=2)
def dqn_update():
    states = random_tensor(2, 5, 4, requires_grad=False)
    next_states = random_tensor(2, 5, 4, requires_grad=False)
    rewards = random_tensor(1, 5, low=-3, high=3, requires_grad=False)
    actions = index_tensor(3, dims=[5])
    done = torch.tensor([False, False, True, False, True])
    policy, target = QNetwork(), QNetwork()
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
    chosen = policy(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = policy(next_states).argmax(1, keepdim=True)
        next_values = target(next_states).gather(1, best).squeeze(1)
        expected = rewards + 0.99 * next_values * (~done).float()
    loss = F.smooth_l1_loss(chosen, expected, beta=0.5)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    for slow, fast in zip(target.parameters(), policy.parameters()):
        slow.data.copy_(0.005 * fast.data + (1 - 0.005) * slow.data)
    return loss


@autotest(n=2)
def ppo_update():
    observations = random_tensor(2, 6, 4, requires_grad=False)
    rewards = random_tensor(1, 6, requires_grad=False)
    actions = index_tensor(3, dims=[6])
    actor = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-2, eps=1e-5)
    with torch.no_grad():
        old = F.log_softmax(actor(observations), dim=-1).gather(1, actions[:, None]).squeeze(1)
        values = critic(observations).flatten()
        advantages, last = torch.zeros_like(rewards), 0.0
        for t in reversed(range(5)):
            delta = rewards[t] + 0.99 * values[t + 1] - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * last
        returns = advantages + values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(2):
        logits = actor(observations)
        log_probabilities = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
        new = log_probabilities.gather(1, actions[:, None]).squeeze(1)
        ratio = (new - old).exp()
        surrogate = torch.min(ratio * advantages, torch.clamp(ratio, 0.99, 1.01) * advantages)
        entropy = -(log_probabilities.exp() * log_probabilities).sum(-1).mean()
        value_loss = 0.5 * (critic(observations).flatten() - returns).pow(2).mean()
        loss = -surrogate.mean() + 0.5 * value_loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
        optimizer.step()
    return loss


class GCNConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, edge_index):
        row, col = edge_index
        degree = torch.zeros(x.size(0)).scatter_add_(0, row, torch.ones(row.numel()))
        scale = degree.pow(-0.5)
        scale[scale == float("inf")] = 0
        messages = (x @ self.weight)[col] * (scale[row] * scale[col]).unsqueeze(-1)
        out = torch.zeros(x.size(0), messages.size(1))
        out.scatter_add_(0, row.unsqueeze(-1).expand_as(messages), messages)
        return out + self.bias


@autotest(n=2)
def graph_convolution():
    x = random_tensor(2, 5, 4, requires_grad=False)
    edges = torch.stack([index_tensor(5, dims=[9]), index_tensor(5, dims=[9])])
    labels = torch.tensor([0, 1, 2, 0, 1])
    mask = torch.tensor([True, True, False, True, False])
    first, second = GCNConv(4, 6), GCNConv(6, 3)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01, weight_decay=5e-4)
    for _ in range(2):
        optimizer.zero_grad()
        out = F.log_softmax(second(F.elu(first(x, edges), alpha=0.7), edges), dim=1)
        loss = F.nll_loss(out[mask], labels[mask])
        loss.backward()
        optimizer.step()
    return loss, out


class GATLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin = nn.Linear(inputs, outputs, bias=False)
        self.att = nn.Parameter(torch.randn(2 * outputs) * 0.3)

    def forward(self, x, source, target):
        h = self.lin(x)
        score = F.leaky_relu(torch.cat([h[source], h[target]], dim=-1) @ self.att, 0.2)
        highest = torch.full((x.size(0),), -1e9).scatter_reduce(0, target, score, reduce="amax")
        score = (score - highest[target]).exp()
        total = torch.zeros(x.size(0)).index_add(0, target, score)
        alpha = score / (total[target] + 1e-16)
        return torch.zeros_like(h).index_add(0, target, h[source] * alpha.unsqueeze(-1))


@autotest(n=2)
def graph_attention():
    x = random_tensor(2, 5, 4)
    source, target = index_tensor(5, dims=[8]), index_tensor(5, dims=[8])
    layer = GATLayer(4, 6)
    return F.elu(layer(x, source, target)).mean(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 8))

    def forward(self, x):
        mu, log_variance = self.encoder(x).chunk(2, dim=-1)
        std = torch.exp(0.5 * log_variance)
        return self.decoder(mu + torch.randn_like(std) * std), mu, log_variance


@autotest(n=2)
def variational_autoencoder():
    x = random_tensor(2, 4, 8, low=0, high=1, requires_grad=False)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    reconstruction, mu, log_variance = model(x)
    bce = F.binary_cross_entropy(torch.sigmoid(reconstruction), x, reduction="sum")
    kl = -0.5 * torch.sum(1 + log_variance - mu.pow(2) - log_variance.exp())
    loss = (bce + kl) / x.shape[0]
    loss.backward()
    optimizer.step()
    return loss, mu


def nt_xent(z1, z2, temperature=0.5):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    similarity = z @ z.T / temperature
    n = z1.shape[0]
    similarity.masked_fill_(torch.eye(2 * n, dtype=torch.bool), -9e15)
    positives = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(similarity, positives)


@autotest(n=2)
def contrastive_learning():
    view_1, view_2 = random_tensor(2, 3, 5), random_tensor(2, 3, 5)
    projector = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))
    loss = nt_xent(projector(view_1), projector(view_2))
    loss.backward()
    return loss


@torch.no_grad()
def update_ema(ema, model, decay):
    for q, p in zip(ema.parameters(), model.parameters()):
        q.mul_(decay).add_(p, alpha=1 - decay)


@autotest(n=2)
def ema_distillation():
    x = random_tensor(2, 4, 5, requires_grad=False)
    student = nn.Sequential(nn.Linear(5, 8), nn.Hardswish(), nn.Linear(8, 3))
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, nesterov=True, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    for _ in range(2):
        soft = F.softmax(teacher(x + 0.1) / 2.0, dim=1)
        loss = F.kl_div(F.log_softmax(student(x) / 2.0, dim=1), soft, reduction="batchmean") * 4.0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        update_ema(teacher, student, 0.9)
    return loss, teacher(x)


class BinarySign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x))

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1).type_as(gradient)


class BinaryLinear(nn.Linear):
    def forward(self, x):
        scale = self.weight.abs().mean(dim=1, keepdim=True).detach()
        return F.linear(x, BinarySign.apply(self.weight) * scale, self.bias)


@autotest(n=2)
def binarised_network():
    x = random_tensor(2, 4, 6, requires_grad=False)
    y = random_tensor(2, 4, 2, requires_grad=False)
    model = nn.Sequential(BinaryLinear(6, 8), nn.Hardtanh(), BinaryLinear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss = F.huber_loss(model(x), y, delta=0.3)
    loss.backward()
    optimizer.step()
    for module in model:
        if isinstance(module, BinaryLinear):
            module.weight.data.clamp_(-1, 1)
    return loss


def quantise(x, bits=8):
    limit = 2 ** (bits - 1) - 1
    scale = x.abs().amax() / limit
    return torch.clamp(torch.round(x / scale), -limit, limit).to(torch.int8), scale


@autotest(n=3, auto_backward=False)
def int8_inference():
    x = random_tensor(2, 3, 6, requires_grad=False)
    weight = random_tensor(2, 4, 6, requires_grad=False)
    qx, sx = quantise(x)
    qw, sw = quantise(weight)
    accumulated = torch.matmul(qx.to(torch.int32), qw.to(torch.int32).t())
    y = accumulated.float() * (sx * sw)
    return F.relu6(y), (y - x @ weight.t()).abs().max() < 0.1


@autotest(n=2)
def quantisation_aware_training():
    x = random_tensor(2, 3, 6)
    weight = random_tensor(2, 4, 6)
    scale = (weight.detach().abs().max() / 127).item()
    wq = torch.fake_quantize_per_tensor_affine(weight, scale, 0, -128, 127)
    xq = torch.fake_quantize_per_tensor_affine(x, 0.02, 0, -128, 127)
    return F.linear(xq, wq)


@autotest(n=2, auto_backward=False)
def quantised_tensor():
    x = random_tensor(2, 3, 6, requires_grad=False)
    q = torch.quantize_per_tensor(x, scale=0.02, zero_point=3, dtype=torch.quint8)
    return q.dequantize(), q.int_repr()


class ResidualBlock(nn.Module):
    expansion = 1

    def __init__(self, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut = nn.Conv2d(channels, channels, 1, stride, bias=False)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


@autotest(n=2)
def resnet_classification():
    x = random_tensor(4, 2, 3, 7, 7, requires_grad=False)
    y = index_tensor(5, dims=[2])
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        ResidualBlock(4),
        ResidualBlock(4, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    model.train()
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        out = model(x)
        _, predicted = out.topk(3, 1, True, True)
        correct = predicted.t().eq(y.view(1, -1).expand(3, -1))
        top3 = correct.reshape(-1).float().sum(0) * 100 / y.size(0)
    return loss, out, top3


def standardise(x, dim=-1):
    if x.is_sparse or x.is_nested or x.is_quantized:
        raise ValueError("dense tensors only")
    if x.is_cuda or x.device.type != "cpu":
        x = x.cpu()
    if not x.is_floating_point():
        x = x.to(torch.get_default_dtype())
    assert x.ndim >= 2 and x.dim() == len(x.shape), x.shape
    keep_graph = torch.is_grad_enabled() and x.requires_grad
    mean, std = x.mean(dim, keepdim=True), x.std(dim, unbiased=False, keepdim=True)
    x = (x - mean) / (std + 1e-5)
    return x if keep_graph else x.detach()


@autotest(n=3)
def standardised_covariance():
    x = random_tensor(3, 2, 5, 4)
    z = standardise(x)
    covariance = z.mT @ z / (z.shape[-2] - 1)
    _, logdet = torch.linalg.slogdet(covariance + torch.eye(4, dtype=z.dtype, device=z.device))
    return covariance, logdet, z[0].T.contiguous()


class SpeechModel(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.conv = nn.Conv1d(features, 8, 3, padding=2, dilation=2)
        self.rnn = nn.GRU(4, 4, bidirectional=True)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        x = F.glu(self.conv(x), dim=1)
        x, _ = self.rnn(x.permute(2, 0, 1))
        return F.log_softmax(self.head(x), dim=-1)


@autotest(n=2)
def ctc_speech():
    x = random_tensor(3, 2, 3, 10, requires_grad=False)
    targets = index_tensor(4, dims=[2, 3]) + 1
    model = SpeechModel(3, 6)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    log_probabilities = model(x)
    lengths = torch.full((2,), log_probabilities.size(0), dtype=torch.long)
    loss = F.ctc_loss(log_probabilities, targets, lengths, torch.tensor([3, 2]), blank=0, zero_infinity=True)
    loss.backward()
    optimizer.step()
    return loss


class MatrixFactorisation(nn.Module):
    def __init__(self, users, items, factors):
        super().__init__()
        self.user, self.item = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.tensor(3.5), requires_grad=False)

    def forward(self, user, item):
        dot = (self.user(user) * self.item(item)).sum(dim=1, keepdim=True)
        return (dot + self.user_bias(user) + self.item_bias(item) + self.mean).squeeze()


@autotest(n=2)
def recommender():
    users, items = index_tensor(5, dims=[8]), index_tensor(6, dims=[8])
    ratings = random_tensor(1, 8, low=1, high=5, requires_grad=False)
    model = MatrixFactorisation(5, 6, 3)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for _ in range(2):
        predicted = model(users, items)
        loss = F.l1_loss(predicted, ratings) + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.sqrt(F.mse_loss(model(users, items), ratings))


class MixtureOfExperts(nn.Module):
    def __init__(self, width, experts, k=2):
        super().__init__()
        self.k = k
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(experts)])

    def forward(self, x):
        weights, chosen = torch.topk(F.softmax(self.gate(x), dim=-1), self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            if token.numel() == 0:
                continue
            out[token] += weights[token, slot, None] * F.mish(expert(x[token]))
        return out


@autotest(n=2)
def mixture_of_experts():
    x = random_tensor(2, 6, 5)
    return MixtureOfExperts(5, 3)(x)


def volume_render(density, color, depth):
    delta = torch.cat([depth[:, 1:] - depth[:, :-1], torch.full_like(depth[:, :1], 1e10)], dim=-1)
    alpha = 1 - torch.exp(-F.relu(density + 0.5) * delta)
    transmittance = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * transmittance
    return (weights[..., None] * color).sum(-2), weights


@autotest(n=2)
def neural_radiance_field():
    origins = random_tensor(2, 3, 3, requires_grad=False)
    directions = random_tensor(2, 3, 3, requires_grad=False) + 2
    directions = directions / directions.norm(dim=-1, keepdim=True)
    depth = torch.linspace(0.5, 2.0, 5).expand(3, 5)
    points = origins[:, None, :] + directions[:, None, :] * depth[..., None]
    encoded = torch.cat([f(points * 2**i) for i in range(2) for f in (torch.sin, torch.cos)], dim=-1)
    field = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
    density, color = torch.split(field(encoded), [1, 3], dim=-1)
    rgb, weights = volume_render(density.squeeze(-1), torch.sigmoid(color), depth)
    loss = ((rgb - 0.5) ** 2).mean()
    loss.backward()
    cdf = torch.cumsum(weights.detach() + 1e-5, -1)
    picked = torch.searchsorted(cdf.contiguous(), torch.full((3, 2), 0.3) * cdf[:, -1:], right=True)
    return loss, picked


class CausalConv(nn.Module):
    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        self.padding = 2 * dilation
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(inputs, outputs, 3, dilation=dilation))

    def forward(self, x):
        return F.relu(self.conv(F.pad(x, (self.padding, 0))))


@autotest(n=2)
def temporal_convolution():
    series = random_tensor(3, 2, 1, 12, requires_grad=False)
    model = nn.Sequential(CausalConv(1, 4, 1), CausalConv(4, 4, 2), nn.Conv1d(4, 1, 1))
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    history, future = series[..., :-1], series[..., 1:]
    for _ in range(2):
        predicted = model(history)
        error = future - predicted
        loss = torch.max(0.9 * error, (0.9 - 1) * error).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss, predicted[..., -1].unbind(0)[0]
