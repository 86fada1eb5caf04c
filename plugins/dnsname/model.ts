import type { PluginModel } from "../lib/model/plugin_model.ts";
import { INPUT_ACCEPT_CHAIN } from "./input_accept.ts";

const model: PluginModel = {
  foreignChains: [INPUT_ACCEPT_CHAIN],
  async serve(context) {
    const { serveNames } = await import("./server/serve_names.ts");
    serveNames(context);
  },
};
export default model;
