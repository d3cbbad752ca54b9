"""YOLO's training by ultralytics, from a model's description, without a network: python yolo.py FOLDER."""

import json
import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
os.environ |= {"YOLO_CONFIG_DIR": str(folder), "YOLO_AUTOINSTALL": "false", "YOLO_OFFLINE": "true"}

import numpy as np  # noqa: E402 - ultralytics reads its settings when it is imported
from PIL import Image  # noqa: E402
from ultralytics import YOLO, settings  # noqa: E402
from ultralytics.data import YOLODataset  # noqa: E402
from ultralytics.models.yolo.detect import DetectionTrainer  # noqa: E402


def make(part: str, count: int) -> None:
    """Write images with a bright square each, and where it is."""
    random = np.random.default_rng(0)
    for kind in ("images", "labels"):
        (folder / kind / part).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels, (x, y) = random.integers(0, 80, (64, 64, 3), np.uint8), random.integers(0, 44, 2)
        pixels[y : y + 20, x : x + 20] += 150
        Image.fromarray(pixels).save(folder / "images" / part / f"{number}.jpg")
        box = f"0 {(x + 10) / 64} {(y + 10) / 64} {20 / 64} {20 / 64}\n"
        (folder / "labels" / part / f"{number}.txt").write_text(box)


class Slow(YOLODataset):
    def __getitem__(self, index):
        time.sleep(0.008)  # planted
        return super().__getitem__(index)


class Trainer(DetectionTrainer):
    def build_dataset(self, *args, **kwargs):
        dataset = super().build_dataset(*args, **kwargs)
        if dataset.augment:
            dataset.__class__ = Slow
        return dataset


if __name__ == "__main__":
    settings.update({"sync": False})
    make("train", 140)
    make("valid", 32)
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/valid\nnames: [square]\n")
    model, clock = YOLO("yolov8n.yaml"), []
    model.add_callback("on_train_epoch_start", lambda _: clock.append([time.perf_counter()]))
    for event in ("on_train_batch_start", "on_train_batch_end"):
        model.add_callback(event, lambda _: clock[-1].append(time.perf_counter()))
    model.train(  # training
        trainer=Trainer,
        data=str(folder / "data.yaml"),
        project=str(folder),
        epochs=2,
        imgsz=64,
        batch=4,
        workers=2,
        device="cpu",
        plots=False,
        seed=0,
    )
    print(f"loss {model.trainer.loss.item():.6f}, mAP {model.trainer.metrics['metrics/mAP50(B)']:.4f}")
    (folder / "clock-0.json").write_text(json.dumps(clock))
