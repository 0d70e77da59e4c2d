// llama.cpp's DeepSeek-OCR-2 by npm's @fugood/llama.node: node llama2.mjs GGUF_FOLDER PAGE TEXT MAX_NEW_TOKENS
// The text goes to descriptor 3, because the library writes its log to stdout.
import fs from "node:fs";
import { loadModel } from "@fugood/llama.node";

const [folder, page, text, most] = process.argv.slice(2);
const exact = { cache_type_k: "f32", cache_type_v: "f32", flash_attn_type: "off" };
const sizes = { n_ctx: 8192, n_batch: 2048, n_ubatch: 2048, n_gpu_layers: 0, n_threads: 1 };
const context = await loadModel({ model: `${folder}/model.gguf`, ...sizes, ...exact });
await context.initMultimodal({ path: `${folder}/mmproj.gguf`, use_gpu: false });
const prompt = { prompt: `<__media__>${text}`, media_paths: [page] };
const greedy = { n_predict: Number(most), temperature: 0, top_k: 1, seed: 1 };
fs.writeSync(3, (await context.completion({ ...prompt, ...greedy }, () => {})).text);
