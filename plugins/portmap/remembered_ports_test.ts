import { expect } from "bun:test";
import type { RememberedAdd } from "../lib/protocol/remembered_add.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import { runInNetns } from "../../testing/netns.ts";
import { errorOfCall, invokePlugin, newHostContext, newRequest } from "../../testing/plugin_call.ts";
import { portMappingConfig } from "../../testing/portmap.ts";
import portmap from "./plugin.ts";

bridgeNetworkTest("caches are asked once, and again after a table that is new", (network) => {
  const { host, container } = network;
  const [a, b, other] = [container(2), container(3), container(4)];
  let questions = 0;
  let remembered: RememberedAdd[] = [];
  const log: string[] = [];
  const rememberedAdds = (type: string) => {
    expect(type).toBe("portmap");
    questions++;
    return remembered;
  };
  const context = newHostContext({ host, rememberedAdds, log });
  const request = (verb: string, { result, netns }: typeof a, containerId: string, hostPort: number) =>
    newRequest("portmap", verb, {
      ...{ name: "web", prevResult: { cniVersion: "1.1.0", ...result } },
      ...portMappingConfig([{ hostPort, containerPort: 80 }]),
    }, { netns, containerId });
  const add = (...parameters: [typeof a, string, number]) =>
    invokePlugin(portmap, request("ADD", ...parameters), context);
  add(a, "a", 8080);
  add(b, "b", 8081);
  expect(questions).toBe(1);
  let lives = true;
  remembered = [{
    owner: { network: "web", containerId: "c", ifname: "eth0" },
    pluginConfig: {
      ...{ name: "web", cniVersion: "1.1.0", type: "portmap", prevResult: other.result },
      raw: portMappingConfig([{ hostPort: 8082, containerPort: 80, hostIP: "10.88.0.1" }]),
    } as unknown as RememberedAdd["pluginConfig"],
    lives: () => lives,
  }];
  add(b, "b", 8082);
  expect(questions).toBe(1);
  const refused = () => errorOfCall(() => add(b, "d", 8082)).message;
  for (const flush of ["flush ruleset", "delete table inet cni"]) {
    runInNetns(host, "nft", flush);
    // Neither an ADD of a free port nor a refused one ends the questions.
    for (let i = 0; i < 2; i++) {
      expect(refused()).toEndWith("has host port 10.88.0.1:8082/tcp");
      add(a, "a", 8080);
    }
  }
  expect([questions, log.length]).toEqual([9, 4]);
  // A ruleset that nft(8) saved may be older than the containers.
  lives = false;
  add(a, "a", 8080);
  add(a, "e", 8083);
  expect(questions).toBe(11);
  add(b, "f", 8084);
  expect(questions).toBe(11);
  runInNetns(host, "sh", "-c", "nft list ruleset >/tmp/$$ && nft flush ruleset && nft -f /tmp/$$; rm /tmp/$$");
  add(b, "g", 8085);
  expect(questions).toBe(12);
  add(b, "h", 8086);
  expect(questions).toBe(12);
  return Promise.resolve();
});

bridgeNetworkTest("caches are read once, also if the ruleset changes each time that they are read", (network) => {
  const { host, container } = network;
  const { result, netns } = container(2);
  const other = container(3).result;
  let [questions, looks] = [0, 0];
  const rememberedAdds = (): RememberedAdd[] => {
    runInNetns(host, "nft", "add table inet other; delete table inet other");
    questions++;
    return [8081, 8082].map((hostPort) => ({
      owner: { network: "web", containerId: `c${hostPort}`, ifname: "eth0" },
      pluginConfig: {
        ...{ name: "web", cniVersion: "1.1.0", type: "portmap", prevResult: other },
        raw: portMappingConfig([{ hostPort, containerPort: 80 }]),
      } as unknown as RememberedAdd["pluginConfig"],
      lives: () => ++looks > 0,
    }));
  };
  const request = newRequest("portmap", "ADD", {
    ...{ name: "web", prevResult: { cniVersion: "1.1.0", ...result } },
    ...portMappingConfig([{ hostPort: 8080, containerPort: 80 }]),
  }, { netns, containerId: "a" });
  const log: string[] = [];
  invokePlugin(portmap, request, newHostContext({ host, rememberedAdds, log }));
  // One that lives is enough.
  expect([questions, looks, log.length]).toEqual([1, 1, 1]);
  return Promise.resolve();
});
