import * as link from "../../ffi/route/link.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { requestedLinkState, tuningConfig } from "./config.ts";
import { requestedSysctls } from "./sysctls.ts";
import { tuningWanted } from "./wanted.ts";

const model: PluginModel = {
  wanted({ raw }, attachment) {
    const config = tuningConfig.parse(raw);
    const { netns, ifname, args } = attachment;
    const changes = {
      sysctls: requestedSysctls(config, ifname),
      linkState: requestedLinkState(config, args["MAC"]),
    };
    return tuningWanted({ ...attachment, config }, changes, link.find(netns.route, ifname));
  },
  changes: "mtu",
};
export default model;
