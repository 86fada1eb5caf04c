import { expect } from "bun:test";
import { openRulesetMonitor } from "../ffi/nft/ruleset_monitor.ts";
import { loadKubeProxyRules } from "../testing/kube_proxy.ts";
import { netnsTest, runInNetns } from "../testing/netns.ts";
import { mayBeLoss } from "./possible_losses.ts";

netnsTest("a base chain of another program may be a loss, those of kube-proxy are none", ({ host }) => {
  using monitor = host.run(() => openRulesetMonitor(1024 * 1024, (change) => mayBeLoss(change, [])));
  const losses = (change: () => void) => {
    change();
    const found: string[] = [];
    monitor.read(({ changes }) => void found.push(...changes.map(({ table }) => table)));
    return found;
  };
  const services = [{ name: "web", clusterIp: "10.96.0.1", endpoints: ["10.66.0.2"] }];
  expect(losses(() => loadKubeProxyRules(host, { mode: "nftables", services }))).toEqual([]);
  const table = "table ip other { chain c { type filter hook forward priority 0; policy drop; }; }";
  expect(losses(() => void runInNetns(host, "nft", table))).toEqual(["other"]);
});
