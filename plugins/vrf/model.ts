import type { PluginModel } from "../lib/model/plugin_model.ts";
import { vrfConfig } from "./config.ts";
import { vrfWanted } from "./wanted.ts";

const model: PluginModel = {
  wanted: ({ raw }, { ifname }) => vrfWanted(vrfConfig.parse(raw), ifname),
  changes: "routing tables",
};
export default model;
