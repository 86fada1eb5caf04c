import type { PluginModel } from "../lib/model/plugin_model.ts";

const model: PluginModel = { changes: "routing tables" };
export default model;
