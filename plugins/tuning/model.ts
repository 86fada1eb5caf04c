import type { PluginModel } from "../lib/model/plugin_model.ts";

const model: PluginModel = { changes: "mtu" };
export default model;
