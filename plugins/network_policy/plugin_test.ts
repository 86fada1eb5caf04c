import { expect } from "bun:test";
import { addContainerInterface, earlierResult } from "../../testing/fixture_configs.ts";
import { runInNetns, runIp, runShellInNetns } from "../../testing/netns.ts";
import { sandboxTest } from "../../testing/sandbox.ts";
import tested from "./plugin.ts";

const SYSCTL = "/proc/sys/net/ipv4/conf/svc0/arp_ignore";

sandboxTest(
  "network-policy ADD makes interface, address, parameter and rule, CHECK looks, DEL removes",
  [],
  (sandbox) => {
    const { call, host, container, directory } = sandbox;
    addContainerInterface({ host, container, directory, defer() {} });
    const config = { interface: "svc0", address: "10.77.0.1/32", prevResult: earlierResult(sandbox) };
    call(tested, "ADD", config);
    const check = () => call(tested, "CHECK", config);
    check();
    for (
      const [change, back, problem] of [
        ["ip link set svc0 down", "ip link set svc0 up", "is down"],
        ["ip addr del 10.77.0.1/32 dev svc0", "ip addr add 10.77.0.1/32 dev svc0", "address 10.77.0.1/32 is missing"],
        [`echo 0 >${SYSCTL}`, `echo 1 >${SYSCTL}`, "is 0, expected 1"],
      ] as const
    ) {
      runShellInNetns(container, change);
      expect(check).toThrow(problem);
      runShellInNetns(container, back);
    }
    runInNetns(host, "nft", "flush", "ruleset");
    expect(check).toThrow("the rule for 10.5.0.9 and 10.77.0.1");
    call(tested, "DEL", config);
    expect(() => runIp(container, "link show svc0")).toThrow("does not exist");
  },
);
