/** Port 53 of the host, which `portmap` may publish beside the server. */
import { expect } from "bun:test";
import { digValues, nameServerTest, newNameSite, startNameServer } from "../../testing/dnsname.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import { portMappingConfig } from "../../testing/portmap.ts";
import { requestUdp, serveUdp } from "../../testing/traffic.ts";
import { findPlugin, loadPlugins } from "../registry.ts";
import tested from "./plugin.ts";

await loadPlugins(["portmap"]);
const portmap = findPlugin("portmap")!;

nameServerTest(
  "port 53 is published on one address beside the server; on all, it takes the questions",
  async (network) => {
    using site = newNameSite();
    using server = startNameServer(network.host, site.paths);
    const [asking, serving] = [network.container(2), network.container(3)];
    network.call(tested, "ADD", site.config, { container: asking, containerId: "one" });
    using _ = await serveUdp(serving.netns, "other", 53);
    const mapping = { hostPort: 53, containerPort: 53, protocol: "udp" };
    const publish = (config: object) => network.call(portmap, "ADD", config, { container: serving });

    const { code, message } = errorOfCall(() => publish(portMappingConfig([mapping])));
    expect(code).toBe(100);
    expect(message).toMatch(`(process ${server.pid}) listens on 10.88.0.1:53`);

    const onOne = portMappingConfig([{ ...mapping, hostIP: "192.0.2.1" }]);
    publish(onOne);
    expect(await requestUdp(network.outside, "192.0.2.1", 53)).toBe("other 192.0.2.2");
    expect(digValues(asking.netns, "@10.88.0.1", "one")).toEqual(["10.88.0.2"]);
    network.call(portmap, "DEL", onOne, { container: serving });

    const onAll = portMappingConfig([mapping], { hostPortInUse: "ignore" });
    publish(onAll);
    expect(await requestUdp(asking.netns, "10.88.0.1", 53)).toBe("other 10.88.0.1");
    expect(digValues(asking.netns, "@10.88.0.1", "+tcp", "one")).toEqual(["10.88.0.2"]);
    network.call(portmap, "DEL", onAll, { container: serving });
    expect(digValues(asking.netns, "@10.88.0.1", "one")).toEqual(["10.88.0.2"]);
  },
);
