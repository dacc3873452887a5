#!/usr/bin/env python3
"""Real architectures with random weights as ONNX files, by both of torch's exporters: what bench/zoo.py runs.

usage: bench/zoo_export.py [--out DIR] [--only REGEX] [--exporter dynamo|script] [--list] [--limit SECONDS]

Architectures are torchvision's, timm's and transformers' own, built from their configurations (no weights are loaded; those
of transformers have fewer layers than published, of full width), and recurrent ones of torch's layers. Each is exported by one
of the two exporters, by its place in the list, or by the other where that one refuses; --exporter takes one for all. Beside NAME.EXPORTER.onnx stands
NAME.EXPORTER.npz: inputs by name. Files that are there already are kept; what cannot be exported is a line in failed.txt.

The packages (torch's wheel of the Python registry, gigabytes with what it wants) are installed into build/ the first time."""
import argparse
import inspect
import os
import re
import signal
import sys
import time
import traceback
import warnings

import lib

OUT = os.path.join(lib.ROOT, "build/zoo")

# torchvision: name → size of the image.
VISION = {
    "alexnet": 224, "vgg11_bn": 224, "googlenet": 224, "inception_v3": 299, "resnet18": 224, "resnet50": 224,
    "resnext50_32x4d": 224, "densenet121": 224, "squeezenet1_1": 224, "mobilenet_v2": 224, "mobilenet_v3_small": 224,
    "shufflenet_v2_x1_0": 224, "mnasnet1_0": 224, "efficientnet_b0": 224, "efficientnet_v2_s": 224, "regnet_y_400mf": 224,
    "regnet_x_400mf": 224, "convnext_tiny": 224, "vit_b_32": 224, "swin_t": 224, "swin_v2_t": 256, "maxvit_t": 224,
}
SEGMENTATION = {"fcn_resnet50": 224, "deeplabv3_mobilenet_v3_large": 256, "lraspp_mobilenet_v3_large": 256}
DETECTION = {"ssdlite320_mobilenet_v3_large": 320, "ssd300_vgg16": 300, "fasterrcnn_mobilenet_v3_large_320_fpn": 320,
             "retinanet_resnet50_fpn": 320, "fcos_resnet50_fpn": 320, "maskrcnn_resnet50_fpn": 320,
             "keypointrcnn_resnet50_fpn": 320}
VIDEO = ["r3d_18", "mc3_18", "s3d", "mvit_v1_b", "swin3d_t"]

TIMM = {
    "ghostnet_100": 224, "hrnet_w18_small": 224, "dla34": 224, "dpn68": 224, "cspresnet50": 224, "cspdarknet53": 224,
    "res2net50_26w_4s": 224, "resnest14d": 224, "skresnet18": 224, "seresnet50": 224, "selecsls42b": 224, "rexnet_100": 224,
    "tf_efficientnet_lite0": 224, "mixnet_s": 224, "mobileone_s0": 224, "repvgg_a0": 224, "repghostnet_100": 224,
    "fastvit_t8": 256, "efficientformer_l1": 224, "efficientformerv2_s0": 224, "efficientvit_b0": 224, "efficientvit_m0": 224,
    "mobilevit_xxs": 256, "mobilevitv2_050": 256, "edgenext_xx_small": 256, "poolformer_s12": 224, "convmixer_768_32": 224,
    "mixer_s32_224": 224, "gmlp_ti16_224": 224, "resmlp_12_224": 224, "deit_tiny_patch16_224": 224, "beit_base_patch16_224": 224,
    "cait_xxs24_224": 224, "crossvit_tiny_240": 240, "xcit_nano_12_p16_224": 224, "pit_ti_224": 224, "levit_128s": 224,
    "coat_lite_tiny": 224, "visformer_tiny": 224, "twins_pcpvt_small": 224, "nest_tiny": 224, "gcvit_xxtiny": 224,
    "davit_tiny": 224, "swinv2_cr_tiny_224": 224, "volo_d1_224": 224, "focalnet_tiny_srf": 224, "pvt_v2_b0": 224,
    "tnt_s_patch16_224": 224, "convit_tiny": 224, "sequencer2d_s": 224, "inception_next_tiny": 224, "inception_resnet_v2": 299,
    "xception41": 299, "ese_vovnet19b_dw": 224, "lcnet_050": 224, "dm_nfnet_f0": 192, "hgnetv2_b0": 224, "starnet_s1": 224,
    "mambaout_femto": 224, "tiny_vit_5m_224": 224, "hiera_tiny_224": 224, "coatnet_nano_rw_224": 224, "botnet26t_256": 256,
    "halonet26t": 256, "lambda_resnet26t": 256, "eca_botnext26ts_256": 256, "mobilenetv4_conv_small": 224,
    "vit_tiny_r_s16_p8_224": 224, "convnextv2_atto": 224, "eva02_tiny_patch14_224": 224, "nextvit_small": 224,
    "repvit_m0_9": 224, "rdnet_tiny": 224, "samvit_base_patch16_224": 224, "gernet_s": 224, "regnetz_b16": 224,
}

LAYERS = {"num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
          "num_decoder_layers": 2, "num_encoder_layers": 2}
# transformers: name → (class, configuration, what it takes, what differs from the configuration's standard).
TEXT, CAUSAL, PAIR, IMAGE, SOUND = "text", "causal", "pair", "image", "sound"
TRANSFORMERS = {
    "bert": ("BertModel", TEXT, {}),
    "distilbert": ("DistilBertForSequenceClassification", TEXT, {}),
    "roberta": ("RobertaForTokenClassification", TEXT, {}),
    "albert": ("AlbertModel", TEXT, {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "electra": ("ElectraModel", TEXT, {}),
    "mobilebert": ("MobileBertModel", TEXT, {"num_hidden_layers": 4}),
    "deberta": ("DebertaModel", TEXT, {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta_v2": ("DebertaV2Model", TEXT, {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
                                            "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                                            "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True}),
    "xlnet": ("XLNetModel", TEXT, {"d_model": 768, "n_head": 12, "d_inner": 3072}),
    "funnel": ("FunnelBaseModel", TEXT, {"block_sizes": [1, 1, 1], "num_hidden_layers": None}),
    "longformer": ("LongformerModel", TEXT, {"attention_window": [32, 32]}),
    "big_bird": ("BigBirdModel", TEXT, {"attention_type": "original_full"}),
    "squeezebert": ("SqueezeBertModel", TEXT, {}),
    "convbert": ("ConvBertModel", TEXT, {}),
    "mpnet": ("MPNetModel", TEXT, {}),
    "layoutlm": ("LayoutLMModel", TEXT, {}),
    "nystromformer": ("NystromformerModel", TEXT, {"segment_means_seq_len": 64, "num_landmarks": 64}),
    "yoso": ("YosoModel", TEXT, {"use_expectation": True}),
    "fnet": ("FNetModel", TEXT, {}),
    "roformer": ("RoFormerModel", TEXT, {}),
    "modernbert": ("ModernBertModel", TEXT, {}),
    "perceiver": ("PerceiverForMaskedLM", TEXT, {"num_self_attends_per_block": 2, "num_blocks": 1}),
    "canine": ("CanineModel", TEXT, {}),
    "gpt2": ("GPT2LMHeadModel", CAUSAL, {}),
    "gpt_neo": ("GPTNeoForCausalLM", CAUSAL, {"hidden_size": 768, "num_heads": 12, "attention_types": [[["global", "local"], 1]]}),
    "gptj": ("GPTJModel", CAUSAL, {"n_embd": 1024, "n_head": 16}),
    "gpt_neox": ("GPTNeoXForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "opt": ("OPTForCausalLM", CAUSAL, {}),
    "bloom": ("BloomModel", CAUSAL, {"hidden_size": 768, "n_head": 12, "vocab_size": 32000}),
    "llama": ("LlamaForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 2048}),
    "mistral": ("MistralForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 4,
                                               "intermediate_size": 2048}),
    "qwen2": ("Qwen2ForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 4,
                                           "intermediate_size": 2048, "vocab_size": 32000}),
    "qwen3": ("Qwen3ForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 4,
                                           "head_dim": 64, "intermediate_size": 2048, "vocab_size": 32000}),
    "gemma": ("GemmaForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 4,
                                           "head_dim": 64, "intermediate_size": 2048, "vocab_size": 32000}),
    "gemma2": ("Gemma2ForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 4,
                                             "head_dim": 64, "intermediate_size": 2048, "vocab_size": 32000}),
    "phi": ("PhiForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "falcon": ("FalconForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "vocab_size": 32000}),
    "stablelm": ("StableLmForCausalLM", CAUSAL, {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 12,
                                                 "intermediate_size": 2048}),
    "mixtral": ("MixtralForCausalLM", CAUSAL, {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4,
                                               "intermediate_size": 1024, "num_local_experts": 4}),
    "mamba": ("MambaModel", CAUSAL, {"vocab_size": 32000}),
    "t5": ("T5Model", PAIR, {"vocab_size": 32128}),
    "t5_encoder": ("T5EncoderModel", TEXT, {}),
    "bart": ("BartModel", PAIR, {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "encoder_attention_heads": 12,
                                 "decoder_attention_heads": 12}),
    "pegasus": ("PegasusModel", PAIR, {"d_model": 768}),
    "marian": ("MarianModel", PAIR, {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 32000,
                                     "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1,
                                     "decoder_vocab_size": 32000}),
    "m2m_100": ("M2M100Model", PAIR, {"d_model": 512, "vocab_size": 32000, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
                                      "encoder_attention_heads": 8, "decoder_attention_heads": 8}),
    "vit": ("ViTModel", IMAGE, {}),
    "deit": ("DeiTModel", IMAGE, {}),
    "beit": ("BeitModel", IMAGE, {}),
    "dinov2": ("Dinov2Model", IMAGE, {"image_size": 224, "patch_size": 14}),
    "segformer": ("SegformerForSemanticSegmentation", IMAGE, {"num_encoder_blocks": 4}),
    "mobilevit": ("MobileViTModel", IMAGE, {"image_size": 256}),
    "dpt": ("DPTForDepthEstimation", IMAGE, {"image_size": 224, "num_hidden_layers": 12}),
    "detr": ("DetrForObjectDetection", IMAGE, {"use_timm_backbone": True, "use_pretrained_backbone": False}),
    "yolos": ("YolosForObjectDetection", IMAGE, {"image_size": [224, 224], "num_detection_tokens": 20}),
    "resnet_hf": ("ResNetForImageClassification", IMAGE, {}),
    "convnext_hf": ("ConvNextModel", IMAGE, {}),
    "swin_hf": ("SwinModel", IMAGE, {"num_layers": None}),
    "cvt": ("CvtModel", IMAGE, {}),
    "poolformer_hf": ("PoolFormerModel", IMAGE, {}),
    "glpn": ("GLPNForDepthEstimation", IMAGE, {}),
    "upernet": ("UperNetForSemanticSegmentation", IMAGE, {}),
    "clip_vision": ("CLIPVisionModel", IMAGE, {}),
    "clip_text": ("CLIPTextModel", TEXT, {}),
    "siglip_vision": ("SiglipVisionModel", IMAGE, {}),
    "wav2vec2": ("Wav2Vec2Model", SOUND, {}),
    "hubert": ("HubertModel", SOUND, {}),
    "wavlm": ("WavLMModel", SOUND, {}),
    "sew": ("SEWModel", SOUND, {}),
    "data2vec_audio": ("Data2VecAudioModel", SOUND, {}),
    "unispeech": ("UniSpeechModel", SOUND, {}),
    "whisper_encoder": ("WhisperModel", "whisper", {"d_model": 384, "encoder_attention_heads": 6, "decoder_attention_heads": 6}),
    "audio_spectrogram": ("ASTModel", "spectrogram", {}),
}
RECURRENT = ["lstm_tagger", "gru_classifier", "rnn_tagger", "lstm_speech", "gru_translator"]
# Decoders that take and return the keys and values of what came before.
CACHED = ["gpt2", "llama", "qwen2", "opt", "gpt_neox", "mistral"]

IMAGE_SIZES = {"mobilevit": 256, "detr": 256}


def images(size, batch=1, channels=3):
    import torch
    return torch.randn(batch, channels, size, size)


class Recurrent:
    """Of torch's own layers, as people write them."""

    @staticmethod
    def make(name):
        import torch
        from torch import nn

        class Tagger(nn.Module):
            def __init__(self, layer, is_last):
                super().__init__()
                self.table, self.is_last = nn.Embedding(8000, 128), is_last
                self.layer = layer(128, 128, num_layers=2, batch_first=True, bidirectional=True)
                self.head = nn.Linear(256, 32)

            def forward(self, ids):
                x, _ = self.layer(self.table(ids))
                return self.head(x[:, -1] if self.is_last else x).log_softmax(-1)

        class Speech(nn.Module):
            def __init__(self):
                super().__init__()
                self.front = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
                                           nn.Conv2d(32, 32, 3, (2, 1), 1), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
                self.layer = nn.LSTM(32 * 20, 256, num_layers=2, bidirectional=True)
                self.head = nn.Linear(512, 29)

            def forward(self, spectrum):
                x = self.front(spectrum)
                x = x.flatten(1, 2).permute(2, 0, 1)
                return self.head(self.layer(x)[0]).softmax(-1)

        class Translator(nn.Module):
            """The states of one sequence attended to in each step of another."""

            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(8000, 128)
                self.reader = nn.GRU(128, 128, num_layers=2, batch_first=True)
                self.writer = nn.GRU(256, 128, batch_first=True)
                self.query, self.head = nn.Linear(128, 128), nn.Linear(256, 1000)

            def forward(self, ids, written):
                states, hidden = self.reader(self.table(ids))
                hidden, steps = hidden[-1:], []
                for i in range(written.shape[1]):
                    weights = torch.bmm(self.query(states), hidden[0][:, :, None]).softmax(1)
                    context = (weights * states).sum(1, keepdim=True)
                    out, hidden = self.writer(torch.cat([self.table(written[:, i:i + 1]), context], -1), hidden)
                    steps.append(self.head(torch.cat([out, context], -1)))
                return torch.cat(steps, 1)

        if name == "gru_translator":
            return Translator(), {"ids": torch.randint(0, 8000, (2, 24)), "written": torch.randint(0, 8000, (2, 8))}
        if name == "lstm_speech":
            return Speech(), {"spectrum": torch.randn(1, 1, 80, 100)}
        layer = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[name.split("_")[0]]
        return Tagger(layer, name.endswith("classifier")), {"ids": torch.randint(0, 8000, (2, 24))}


def configured(class_name, kind, changes):
    import transformers
    import torch
    cls = getattr(transformers, class_name)
    layers = {}
    known = cls.config_class()
    for field, count in LAYERS.items():
        if isinstance(getattr(known, field, None), int) and kind != IMAGE:
            layers[field] = count
    words = {key: value for key, value in {**layers, **changes}.items() if value is not None}
    config = cls.config_class(**words)
    config._attn_implementation = "eager" if class_name.startswith(("Deberta", "Canine")) else config._attn_implementation
    config.return_dict = True
    torch.manual_seed(0)
    return cls(config), config


class Named:
    """A module whose forward takes tensors in order and returns tensors alone."""

    @staticmethod
    def wrap(model, names, **fixed):
        import torch

        class Wrapped(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, *tensors):
                result = self.model(**dict(zip(names, tensors)), **fixed)
                return flat(result)

        # The exporters name inputs after the parameters of forward.
        scope = {}
        exec(f"def forward(self, {', '.join(names)}): return self._run({', '.join(names)})", scope)
        Wrapped._run = Wrapped.forward
        Wrapped.forward = scope["forward"]
        return Wrapped()


def flat(result):
    import torch
    if torch.is_tensor(result):
        return (result,)
    if hasattr(result, "to_tuple"):
        result = result.to_tuple()
    if isinstance(result, dict):
        result = tuple(result.values())
    if hasattr(result, "layers") and not isinstance(result, (tuple, list)):  # a cache of keys and values
        result = tuple(t for layer in result.layers for t in (layer.keys, layer.values))
    found = []
    for each in result if isinstance(result, (tuple, list)) else []:
        if each is not None:
            found.extend(flat(each))
    return tuple(found)


def cached(name):
    """One step of a decoder: a token, and the keys and values of 31 before it."""
    import torch
    from transformers.cache_utils import DynamicCache
    class_name, kind, changes = TRANSFORMERS[name]
    model, config = configured(class_name, kind, changes)
    layers = config.num_hidden_layers
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    names = ["input_ids", "attention_mask"] + [f"past_{what}_{i}" for i in range(layers) for what in ("key", "value")]

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def _run(self, input_ids, attention_mask, *past):
            cache = DynamicCache()
            for i in range(layers):
                cache.update(past[2 * i], past[2 * i + 1], i)
            result = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
            kept = result.past_key_values
            return (result.logits, *(t for layer in kept.layers for t in (layer.keys, layer.values)))

    scope = {}
    exec(f"def forward(self, {', '.join(names)}): return self._run({', '.join(names)})", scope)
    Step.forward = scope["forward"]
    inputs = {"input_ids": torch.randint(0, 1000, (1, 1)), "attention_mask": torch.ones(1, 32, dtype=torch.int64)}
    inputs.update({each: torch.randn(1, heads, 31, width) for each in names[2:]})
    return Step(), inputs


def from_transformers(name):
    import torch
    class_name, kind, changes = TRANSFORMERS[name]
    model, config = configured(class_name, kind, changes)
    vocabulary = min(getattr(config, "vocab_size", 1000) or 1000, 1000)
    ids = torch.randint(5, vocabulary, (1, 64))
    if kind in (TEXT, CAUSAL, PAIR):
        inputs = {"input_ids": ids}
        if "attention_mask" in inspect.signature(model.forward).parameters:
            inputs["attention_mask"] = torch.ones_like(ids)
        if kind == PAIR:
            inputs["decoder_input_ids"] = torch.randint(5, vocabulary, (1, 16))
    elif kind == IMAGE:
        size = IMAGE_SIZES.get(name, 224)
        inputs = {"pixel_values": images(size)}
    elif kind == SOUND:
        inputs = {"input_values": torch.randn(1, 8000)}
    elif kind == "whisper":
        model = model.encoder
        inputs = {"input_features": torch.randn(1, 80, 3000)}
    else:
        inputs = {"input_values": torch.randn(1, 1024, 128)}
    takes_cache = "use_cache" in inspect.signature(model.forward).parameters or kind == PAIR
    return Named.wrap(model, list(inputs), **({"use_cache": False} if takes_cache else {})), inputs


def build(name):
    """(module, inputs by name) of NAME as `names` lists it."""
    import torch
    family, name = name.split(".", 1)
    torch.manual_seed(0)
    if family == "torchvision":
        import torchvision.models as tv
        if name in VISION:
            return tv.get_model(name, weights=None, **({"init_weights": True} if name in ("googlenet", "inception_v3") else {})), \
                {"image": images(VISION[name])}
        if name in SEGMENTATION:
            model = tv.get_model(name, weights=None, weights_backbone=None)
            image = "input" if name.startswith("lraspp") else "x"  # as its forward calls it
            return Named.wrap(model, [image]), {image: images(SEGMENTATION[name])}
        if name in DETECTION:
            model = tv.get_model(name, weights=None, weights_backbone=None)
            size = DETECTION[name]
            # Random weights are sure of nothing and see the same everywhere: an empty list of boxes would agree with any
            # other, and of boxes with nearly equal scores rounding chooses.
            torch.manual_seed(1)
            for part in model.modules():
                if isinstance(part, torch.nn.BatchNorm2d):
                    part.momentum = 1.0
            with torch.no_grad():
                model.backbone.train()(torch.randn(2, 3, size, size))
            model.eval()
            for part in (model, getattr(model, "roi_heads", None)):
                if hasattr(part, "score_thresh"):
                    part.score_thresh = 0.0

            class Detector(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.model = model

                def forward(self, image):
                    found = self.model([image])
                    return tuple((found[1] if isinstance(found, tuple) else found)[0].values())

            return Detector(), {"image": torch.rand(3, size, size)}
        return tv.get_model(name, weights=None), {"clip": torch.randn(1, 3, 16, *((224, 224) if name in ("mvit_v1_b", "swin3d_t", "s3d") else (112, 112)))}
    if family == "timm":
        import timm
        return timm.create_model(name, pretrained=False), {"image": images(TIMM[name])}
    if family == "recurrent":
        return Recurrent.make(name)
    if name.endswith("_step"):
        return cached(name[:-5])
    return from_transformers(name)


def names():
    return [*(f"torchvision.{n}" for group in (VISION, SEGMENTATION, DETECTION, VIDEO) for n in group),
            *(f"timm.{n}" for n in TIMM), *(f"transformers.{n}" for n in TRANSFORMERS),
            *(f"transformers.{n}_step" for n in CACHED), *(f"recurrent.{n}" for n in RECURRENT)]


def disturb(module):
    """Tensors of equal elements (zeroed heads, scales of 1e-6, statistics of batch normalisation) would hide what is before
    them: their elements become different ones."""
    import torch
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            is_statistic = name.endswith(("running_mean", "running_var"))
            if tensor.is_floating_point() and tensor.numel() > 1 and (tensor.requires_grad or is_statistic) and tensor.min() == tensor.max():
                tensor.add_(0.1 * torch.randn_like(tensor) / max(1, tensor.shape[-1] if tensor.dim() > 1 else 1) ** 0.5)
                if name.endswith("running_var"):
                    tensor.abs_().add_(0.1)


def export(name, exporter, path):
    import numpy
    import torch
    torch.set_num_threads(1)
    module, inputs = build(name)
    module.eval()
    disturb(module)
    arguments = tuple(inputs.values())
    with torch.no_grad():
        if exporter == "dynamo":
            program = torch.onnx.export(module, arguments, dynamo=True, input_names=list(inputs), verbose=False, opset_version=20)
            program.save(path, external_data=False)
        else:
            torch.onnx.export(module, arguments, path, dynamo=False, input_names=list(inputs), opset_version=17)
    numpy.savez(path[:-len(".onnx")] + ".npz", **{key: value.numpy() for key, value in inputs.items()})


def in_child(name, exporter, path, limit, log):
    """Exports in a process of its own; the reason of a failure."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        status = 0
        try:
            export(name, exporter, path + ".part.onnx")
            os.rename(path + ".part.npz", path[:-len(".onnx")] + ".npz")
            os.rename(path + ".part.onnx", path)
        except BaseException as error:  # pylint: disable=broad-except
            traceback.print_exc()
            print(f"REASON {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
            status = 1
        os._exit(status)
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status == 0:
                return ""
            with open(log, encoding="utf-8", errors="replace") as file:
                reasons = [line[7:].strip() for line in file if line.startswith("REASON ")]
            return reasons[-1] if reasons else f"the exporter died with status {status}"
        time.sleep(0.1)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"no end within {limit} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=OUT)
    parser.add_argument("--only", default="")
    parser.add_argument("--exporter", choices=["dynamo", "script"])
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    chosen = [(name, arguments.exporter or ("dynamo", "script")[i % 2]) for i, name in enumerate(names())]
    chosen = [(name, exporter) for name, exporter in chosen if re.search(arguments.only, name)]
    if arguments.list:
        print(*(f"{name}.{exporter}" for name, exporter in chosen), sep="\n")
        return
    lib.enter("bench-zoo-python")
    warnings.filterwarnings("ignore")
    os.makedirs(arguments.out, exist_ok=True)
    import timm  # noqa: F401  # pylint: disable=unused-import
    import torch.onnx  # noqa: F401  # pylint: disable=unused-import
    import torchvision  # noqa: F401  # pylint: disable=unused-import
    import transformers  # noqa: F401  # pylint: disable=unused-import
    failed = {}
    for name, exporter in chosen:
        both = [exporter] if arguments.exporter else [exporter, "script" if exporter == "dynamo" else "dynamo"]
        paths = [os.path.join(arguments.out, f"{name}.{each}.onnx") for each in both]
        if any(map(os.path.exists, paths)):
            continue
        for each, path in zip(both, paths):
            begin = time.monotonic()
            reason = in_child(name, each, path, arguments.limit, os.path.join(arguments.out, "export.log"))
            print(f"{name}.{each}: {reason or 'exported'} ({time.monotonic() - begin:.0f} s)", flush=True)
            if not reason:
                break
            failed[f"{name}.{each}"] = reason
    with open(os.path.join(arguments.out, "failed.txt"), "a", encoding="utf-8") as file:
        file.writelines(f"{name}: {reason}\n" for name, reason in failed.items())


if __name__ == "__main__":
    main()
