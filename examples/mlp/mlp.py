"""Train a two-layer network on handwritten digits, data-parallel over every device there is.

One asyncio thread describes the work; the devices do it, and a collective adds their gradients up. Nothing here places
an event, waits for another stream or device, or frees memory: the operations say what they read and what they write.
"""

import argparse
import asyncio
import contextlib
import math
import os
import time
from pathlib import Path

import numpy as np
from rich.progress import Progress

import aiocuda as ac
from aiocuda.collective import Group

HERE = Path(__file__).parent
PIXELS, HIDDEN, CLASSES = 64, 128, 10
SHAPES = [(PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]  # w1, b1, w2, b2
BATCH, RATE, MOMENTUM = 128, 0.1, 0.9

SOURCE = (HERE / "kernels.cu").read_text()
GEMM = {
    "AB": ac.kernel(SOURCE, "gemm<false, false>"),
    "AtB": ac.kernel(SOURCE, "gemm<true, false>"),
    "ABt": ac.kernel(SOURCE, "gemm<false, true>"),
}
add_bias = ac.kernel(SOURCE, "add_bias<false>")
add_bias_relu = ac.kernel(SOURCE, "add_bias<true>")
softmax_cross_entropy = ac.kernel(SOURCE, "softmax_cross_entropy")
relu_backward = ac.kernel(SOURCE, "relu_backward")
sum_rows = ac.kernel(SOURCE, "sum_rows")
sgd = ac.kernel(SOURCE, "sgd")


def matmul(form, a, b, m, n, k):
    """Multiply to m x n over k; the form says which factor is transposed: "AB", "AtB", "ABt"."""
    grid = (math.ceil(n / 16), math.ceil(m / 16))
    return GEMM[form](a, b, ac.empty((m, n)), m, n, k, grid=grid, block=(16, 16))


def forward(weights, images, rows):
    """Describe the hidden layer and the logits."""
    w1, b1, w2, b2 = weights
    hidden = matmul("AB", images, w1, rows, HIDDEN, PIXELS)
    hidden = add_bias_relu(hidden, b1, rows, HIDDEN, threads=rows * HIDDEN)
    logits = matmul("AB", hidden, w2, rows, CLASSES, HIDDEN)
    return hidden, add_bias(logits, b2, rows, CLASSES, threads=rows * CLASSES)


def backward(weights, images, labels, rows, batch):
    """Describe each image's loss, and these rows' part of the batch's mean gradients."""
    hidden, logits = forward(weights, images, rows)
    delta, loss = softmax_cross_entropy(logits, ac.empty(rows), labels, rows, CLASSES, 1 / batch, threads=rows).unzip()
    back = matmul("ABt", delta, weights[2], rows, HIDDEN, CLASSES)
    back = relu_backward(back, hidden, rows * HIDDEN, threads=rows * HIDDEN)
    return loss, [
        matmul("AtB", images, back, PIXELS, HIDDEN, rows),
        sum_rows(back, ac.empty(HIDDEN), rows, HIDDEN, grid=HIDDEN, block=64),
        matmul("AtB", hidden, delta, HIDDEN, CLASSES, rows),
        sum_rows(delta, ac.empty(CLASSES), rows, CLASSES, grid=CLASSES, block=64),
    ]


class Network:
    """The same weights on every device, each device training on its share of every batch.

    Several devices need a group of them, `Group.local(devices)`.
    """

    def __init__(self, group=None):
        self.group = group

    async def start(self, devices, values):
        """Give every device the same weights, and no velocity."""
        self.devices = devices
        self.uploads = [device.stream() for device in devices]
        self.rows = [len(share) for share in np.array_split(range(BATCH), len(devices))]
        copies = zip(*[ac.replicate(value, devices) for value in values], strict=True)
        self.weights = [await ac.zip(*mine) for mine in copies]
        self.velocities = [await ac.zip(*[ac.zeros(shape, device=d) for shape in SHAPES]) for d in devices]
        # submit() in an epoch does not wait for a compiler beside the event loop, as an await does.
        await asyncio.gather(*[sgd.compile_async(device) for device in devices])

    def losses_and_gradients(self, batch):
        """Describe one batch: each device's losses, and on each the gradients summed over all."""
        losses, parts = [], []
        shards = [ac.shard(kind, self.devices) for kind in batch]
        for device, upload, rows, weights, images, labels in zip(
            self.devices, self.uploads, self.rows, self.weights, *shards, strict=True
        ):
            with ac.use(device):
                loss, part = backward(weights, images.on(upload), labels.on(upload), rows, BATCH)
            losses.append(ac.to_host(loss))
            parts.append(part)
        return losses, self.summed(parts)

    def summed(self, parts):
        """Describe the sums of the devices' gradients, on each device: one call for all of them."""
        return parts if self.group is None else self.group.all_reduce(parts)

    def step(self, batch):
        """Describe one step of training; its result is the batch's mean loss."""
        losses, totals = self.losses_and_gradients(batch)
        updates = []
        for device, *state in zip(self.devices, self.weights, self.velocities, totals, strict=True):
            with ac.use(device):
                for weight, velocity, gradient in zip(*state, strict=True):
                    n = weight.size
                    updates.append(sgd(weight, velocity, gradient, RATE, MOMENTUM, n, threads=n))
        return ac.zip(*losses, *updates).map(lambda done: float(np.mean(np.concatenate(done[: len(losses)]))))

    async def epoch(self, batches):
        """Train once on each batch; yield their losses."""
        running = None
        for batch in batches:
            step = self.step(batch).submit()  # it uploads while the last step computes
            if running is not None:
                yield await running
            running = step
        yield await running

    async def accuracy(self, images, labels):
        """Measure the share of images that the network reads right."""
        with ac.use(self.devices[0]):
            _, logits = forward(self.weights[0], ac.to_device(images), len(images))
            return float(np.mean((await ac.to_host(logits)).argmax(axis=1) == labels))


async def allocate(batches):
    """Allocate page-locked memory for the images and labels of each batch."""
    return [
        await ac.zip(ac.empty_host((BATCH, PIXELS), np.float32), ac.empty_host(BATCH, np.uint8)) for _ in range(batches)
    ]


def shuffle(batches, images, labels, rng):
    """Fill the batches with images in a new order; no upload may be under way."""
    order = rng.permutation(len(images))
    for pixels, classes in batches:
        chosen, order = np.split(order, [BATCH])
        pixels.numpy()[:] = images[chosen]
        classes.numpy()[:] = labels[chosen]


async def gradient_error(network, values, batch):
    """Find the largest error of one batch's gradients against NumPy's in float64, relative."""
    _, totals = network.losses_and_gradients(batch)
    found = await ac.zip(*[ac.to_host(gradient) for gradient in totals[-1]])
    images, labels = (kind.numpy() for kind in batch)
    w1, b1, w2, b2 = (value.astype(np.float64) for value in values)
    hidden = np.maximum(images @ w1 + b1, 0)
    odds = np.exp(hidden @ w2 + b2)
    delta = (odds / odds.sum(axis=1, keepdims=True) - np.eye(CLASSES)[labels]) / len(labels)
    back = delta @ w2.T * (hidden > 0)
    expected = [images.T @ back, back.sum(axis=0), hidden.T @ delta, delta.sum(axis=0)]
    return max(np.abs(f - e).max() / np.abs(e).max() for f, e in zip(found, expected, strict=True))


def prepare():
    """Read the digits, shuffled and divided, and draw the first weights."""
    rng = np.random.default_rng(20)
    with np.load(HERE / "digits.npz") as data:
        order = rng.permutation(len(data["labels"]))
        images = (data["images"][order].reshape(-1, PIXELS) / 16).astype(np.float32)
        labels = data["labels"][order]
    train_count = 4 * len(labels) // 5
    training = images[:train_count], labels[:train_count]
    testing = images[train_count:], labels[train_count:]
    values = [
        (rng.standard_normal(shape) * math.sqrt(2 / shape[0]) * (len(shape) > 1)).astype(np.float32) for shape in SHAPES
    ]

    return training, testing, values, rng


async def train(epochs, devices, group):
    """Train, report, and say whether the gradients agree and 95 % of the digits are read right."""
    training, testing, values, rng = prepare()
    network = Network(group)
    await network.start(devices, values)
    batches = await allocate(len(training[1]) // BATCH)
    shuffle(batches, *training, rng)
    error = await gradient_error(network, values, batches[0])

    began = time.perf_counter()
    with Progress() as progress:
        bar = progress.add_task("training", total=epochs * len(batches))
        for _ in range(epochs):
            async for loss in network.epoch(batches):
                progress.update(bar, advance=1, description=f"loss {loss:.4f}")
            shuffle(batches, *training, rng)
    seconds = time.perf_counter() - began
    seen = epochs * len(batches) * BATCH
    accuracy = await network.accuracy(*testing)

    driver = "emulated" if devices[0].is_emulated else "NVIDIA"
    print(f"driver             {driver}, {len(devices)} x {devices[0].name}")
    print(f"first gradients    within {error:.1e} of NumPy's (largest relative error)")
    print(f"images per second  {seen / seconds:,.0f}")
    print(f"test accuracy      {accuracy:.1%} of {len(testing[1])} images")
    return error < 1e-4 and accuracy >= 0.95


def run_demo(arguments=None):
    """Run the example; the exit status is 0 when it learned what it should."""
    parser = argparse.ArgumentParser(prog="aiocuda demo", description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training images")
    parser.add_argument("--devices", type=int, help="how many devices to train on; all there are where it is not given")
    # Emulated devices are as many as one asks for, and this example is about several.
    os.environ.setdefault("AIOCUDA_EMULATED_DEVICES", "2")
    given = parser.parse_args(arguments)
    devices = ac.devices()
    if given.devices is not None:
        if not 1 <= given.devices <= len(devices):
            parser.error(f"--devices {given.devices} was asked for; there are {len(devices)}")
        devices = devices[: given.devices]
    try:
        group = Group.local(devices) if len(devices) > 1 else None
    except ac.MissingPackageError as error:
        if given.devices is not None:
            raise SystemExit(f"aiocuda demo: {error}") from error
        print(f"trains on one device of {len(devices)}: {error}")
        devices, group = devices[:1], None
    with group or contextlib.nullcontext():
        return 0 if asyncio.run(train(given.epochs, devices, group)) else 1


if __name__ == "__main__":
    raise SystemExit(run_demo())
