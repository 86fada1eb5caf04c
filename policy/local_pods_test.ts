import { expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseIp } from "../ffi/address.ts";
import { createEntry } from "../runtime/cache.ts";
import { useDirectory } from "../testing/directory.ts";
import { LocalPods } from "./local_pods.ts";

const directory = useDirectory("cni-local-pods-");
const KEY = { network: "pods", containerId: "c2", ifname: "eth0" };
const ATTACHED = [{ ...KEY, ip: parseIp("10.1.0.2"), interface: "veth2" }];
const OLD = { namespace: "web", name: "old", uid: "uid-old" };

test("a container that is just attached is not taken for the pod that had its address before", () => {
  const cache = join(directory, "cache");
  mkdirSync(cache);
  const pods = new LocalPods([cache]);
  const named = (ms: number) => [...pods.group(ATTACHED, () => OLD, ms).keys()];
  expect([named(0), named(20_000)]).toEqual([[], []]);
  const args = [["K8S_POD_NAMESPACE", "web"], ["K8S_POD_NAME", "new"], ["K8S_POD_UID", "uid-new"]] as const;
  createEntry(cache, { ...KEY, config: "", args: [...args], capabilityArgs: {}, result: {} });
  expect([named(20_000), named(60_000)]).toEqual([["uid-new"], ["uid-new"]]);
});

test("where no entry is ever found, the address tells", () => {
  const pods = new LocalPods([join(directory, "none")]);
  const named = (ms: number, owner: typeof OLD | undefined = OLD) => [...pods.group(ATTACHED, () => owner, ms).keys()];
  expect([named(0), named(30_000)]).toEqual([[], ["uid-old"]]);
  // Its pod may leave the API before its sandbox ends.
  expect(named(31_000, undefined)).toEqual(["uid-old"]);
});
