import type { PluginModel } from "../lib/model/plugin_model.ts";

/** Its rules are elements in tables of ours, which tools find by their owner. */
const model: PluginModel = { needsRouter: true };
export default model;
