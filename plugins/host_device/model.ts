import type { PluginModel } from "../lib/model/plugin_model.ts";

const model: PluginModel = { takesDevice: true };
export default model;
