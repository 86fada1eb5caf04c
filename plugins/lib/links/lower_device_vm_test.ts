/** Links on a lower device, on a kernel that looks for their names in the wrong namespace. */
import { expect } from "bun:test";
import { ipShow, linkNames, runShellInNetns } from "../../../testing/netns.ts";
import { ipamGiving, lanTest } from "../../../testing/lan.ts";
import { withPrevResult } from "../../../testing/sandbox.ts";
import ipvlan from "../../ipvlan/plugin.ts";
import macvlan from "../../macvlan/plugin.ts";
import vlan from "../../vlan/plugin.ts";

for (const plugin of [macvlan, ipvlan, vlan]) {
  lanTest(
    `${plugin.name} gives the container an interface whose name the host has too`,
    ({ call, container, host }) => {
      runShellInNetns(host, "ip link add eth0 type dummy");
      const config = { master: "up0", vlanId: 5, ...ipamGiving("10.5.0.2/24") };
      const unusable = { ...config, ...ipamGiving("10.5.0.2/33") };
      expect(() => call(plugin, "ADD", unusable)).toThrow();
      expect(linkNames(container)).toEqual(["lo"]);
      const result = call(plugin, "ADD", config);
      expect(result.interfaces).toMatchObject([{ name: "eth0", sandbox: container.path }]);
      expect(ipShow(container, "link", "show", "eth0")[0]).toMatchObject({
        ...{ ifalias: "cni:test c1 eth0", linkinfo: { info_kind: plugin.name } },
      });
      call(plugin, "CHECK", withPrevResult(config, result));
      call(plugin, "DEL", config);
      expect([linkNames(container), linkNames(host)]).toEqual([["lo"], ["eth0", "lo", "up0"]]);
    },
  );
}
