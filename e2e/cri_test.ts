/** Pods of containerd's CRI plugin, as a kubelet starts and stops them, with our plugins where it looks for any. */
import { describe, expect } from "bun:test";
import { testWith } from "../testing/binary.ts";
import { CRI_PROGRAMS } from "../testing/cri.ts";
import { useCri } from "../testing/engines.ts";
import { cleanNodeState, nodeState, type TestNode } from "../testing/node.ts";
import { until } from "../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../testing/traffic.ts";

describe("a pod of containerd's CRI", () => {
  const used = useCri();

  const ports = [{ hostPort: 8080, containerPort: 80 }];

  testWith(CRI_PROGRAMS, "has addresses of both families, a host port and limits, until it is stopped", async () => {
    const { node, cri } = used;
    const { host, outside } = node;
    expect(await cri.networkProblem()).toBe("");
    expect(nodeState(node)).toEqual(cleanNodeState());
    const id = await cri.run({ name: "web", ports, bandwidth: "8M" });
    {
      using pod = await cri.container(id);
      expect(await cri.status(id)).toMatchObject({ state: "SANDBOX_READY", ips: ["10.94.0.2", "fd94::2"] });
      expect(pod.addresses("eth0")).toEqual(["10.94.0.2/24", "fd94::2/64"]);
      using _server = serveTcp(pod.netns, "web", 80);
      expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("web 192.0.2.2");
      expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("web 10.94.0.1");
      await until(async () => await requestTcp(host, "fd94::2", 80) === "web fd94::1");
      using _outside = serveTcp(outside, "outside", 80);
      expect(await requestTcp(pod.netns, "192.0.2.2", 80)).toBe("outside 192.0.2.1");
      expect(tokenBucketRates(node)).toEqual([1_000_000, 1_000_000]);
    }
    await cri.stop(id);
    const stopped = nodeState(node);
    expect(stopped).toEqual(cleanNodeState("pods0"));
    expect(await cri.status(id)).toMatchObject({ state: "SANDBOX_NOTREADY", ips: [], pid: 0 });
    expect(await requestTcp(outside, "192.0.2.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBe(undefined);
    // A kubelet does so until it has seen the result.
    await cri.stop(id);
    await cri.stop(id);
    await cri.remove(id);
    await cri.remove(id);
    expect(await cri.list()).toEqual([]);
    expect(nodeState(node)).toEqual(stopped);
  });

  testWith(CRI_PROGRAMS, "shows why it cannot start, and nothing is left of it", async () => {
    const { node, cri } = used;
    const id = await cri.run({ name: "first", ports });
    const before = nodeState(node);
    const message = await cri.run({ name: "second", ports, bandwidth: "8M" }).then(() => "", (error) => error.message);
    expect(message).toContain(`Cannot publish host port 8080/tcp: container "${id}" (network "pods"`);
    expect(nodeState(node)).toEqual(before);
    await cri.stop(id);
    await cri.remove(id);
    expect(nodeState(node)).toEqual(cleanNodeState("pods0"));
  });

  testWith(CRI_PROGRAMS, "outlives containerd, which stops it when it is back", async () => {
    const { node, cri } = used;
    const id = await cri.run({ name: "web", ports, bandwidth: "8M" });
    using pod = await cri.container(id);
    using _server = serveTcp(pod.netns, "web", 80);
    const before = await cri.status(id);
    await cri.kill();
    expect(await requestTcp(node.outside, "192.0.2.1", 8080)).toBe("web 192.0.2.2");
    await cri.restart();
    expect(await cri.status(id)).toEqual(before);
    await cri.stop(id);
    await cri.remove(id);
    expect(nodeState(node)).toEqual(cleanNodeState("pods0"));
  });
});

interface TokenBucket {
  readonly kind: string;
  readonly options: { readonly rate: number };
}

/** Bytes per second, as tc(8) shows them. */
const tokenBucketRates = ({ run }: TestNode): number[] =>
  JSON.parse(run("tc", "-j", "qdisc")).filter(({ kind }: TokenBucket) => kind === "tbf")
    .map(({ options }: TokenBucket) => options.rate);
