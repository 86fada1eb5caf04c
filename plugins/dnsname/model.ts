import type { PluginModel } from "../lib/model/plugin_model.ts";
import { INPUT_ACCEPT_CHAIN } from "./input_accept.ts";

const model: PluginModel = { foreignChains: [INPUT_ACCEPT_CHAIN] };
export default model;
