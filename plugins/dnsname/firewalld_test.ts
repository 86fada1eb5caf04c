/** Beside a firewalld of its own. */
import { expect } from "bun:test";
import { digValues, nameServerTest, newNameSite, startNameServer } from "../../testing/dnsname.ts";
import { FIREWALLD_PROGRAMS, runOnBus, startBus, startFirewalld } from "../../testing/firewalld.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import tested from "./plugin.ts";

/** firewalld is slow. */
const START_MS = 100_000;

nameServerTest(
  "firewalld lets questions in as long as there is a container",
  async (network) => {
    const { host } = network;
    using site = newNameSite();
    using _server = startNameServer(host, site.paths);
    using bus = await startBus();
    using _firewalld = await startFirewalld(host, bus);
    const container = network.container(2);
    const env = { DBUS_SYSTEM_BUS_ADDRESS: bus.address };
    const parameters = (containerId: string) => ({ container, containerId, env });
    const call = (verb: "ADD" | "CHECK" | "DEL", containerId = "one") =>
      network.call(tested, verb, site.config, parameters(containerId));
    const rules = () => runOnBus(host, bus, "firewall-cmd --list-rich-rules").split("\n").filter((line) => line !== "");
    const asked = () => digValues(container.netns, "@10.88.0.1", "+timeout=2", "one");
    expect(rules()).toEqual([]);
    call("ADD");
    expect(rules()).toHaveLength(4);
    expect(rules()).toContain(
      'rule family="ipv4" destination address="10.88.0.1" port port="53" protocol="udp" accept',
    );
    expect([asked(), digValues(container.netns, "@fd88::1", "+tcp", "one")]).toEqual([["10.88.0.2"], ["10.88.0.2"]]);
    call("CHECK");
    call("ADD", "two");
    call("DEL", "two");
    expect(rules()).toHaveLength(4);

    runOnBus(host, bus, "firewall-cmd --reload");
    expect(errorOfCall(() => call("CHECK")).message).toContain("there is no rule of firewalld for 10.88.0.1");
    expect(network.restore(tested, site.config, parameters("one"))).toEqual([
      "rule of firewalld for 10.88.0.1",
      "rule of firewalld for fd88::1",
    ]);
    expect(asked()).toEqual(["10.88.0.2"]);
    call("DEL");
    expect(rules()).toEqual([]);
  },
  [...FIREWALLD_PROGRAMS, "firewall-cmd"],
  START_MS,
);
