import { afterAll, beforeAll, describe, expect } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { currentNetns } from "../../ffi/netns.ts";
import { type ApiServer, serveApi } from "../../testing/api_server.ts";
import { testWith } from "../../testing/binary.ts";
import { findPodCidrs } from "./pod_cidrs.ts";

const PROGRAMS = ["openssl"];
const CIDRS = ["10.244.3.0/24", "fd44:0:0:3::/64"];
const ADDRESS = "127.0.0.1";

describe("the pod ranges of a node", () => {
  const resources = new DisposableStack();
  const account = mkdtempSync(join(tmpdir(), "cni-account-"));
  let server: ApiServer;
  let env: Record<string, string>;
  beforeAll(() => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    const host = resources.use(currentNetns());
    const nodes = [{ name: "node-1", podCIDRs: CIDRS }, { name: "new" }].map(({ name, ...spec }) => ({
      ...{ apiVersion: "v1", kind: "Node", metadata: { name }, spec } as const,
    }));
    server = resources.use(serveApi(host, ADDRESS, "token-1", nodes, account));
    writeFileSync(join(account, "ca.crt"), server.ca);
    env = { KUBERNETES_SERVICE_HOST: ADDRESS, KUBERNETES_SERVICE_PORT: `${server.port}` };
  });
  afterAll(() => {
    resources.dispose();
    rmSync(account, { recursive: true });
  });

  const find = (node: string, token = "token-1\n", ownEnv = env) => {
    writeFileSync(join(account, "token"), token);
    return findPodCidrs(node, ownEnv, account);
  };

  testWith(PROGRAMS, "are those of both families", async () => {
    expect(await find("node-1")).toEqual(CIDRS as never);
  });

  testWith(PROGRAMS, "are asked for with one clear error after a failure", async () => {
    const failure = (problem: string) =>
      expect.stringContaining(`Cannot read the pod ranges of node "new": ${problem}`);
    const refusals = [
      [() => find("new"), "it has no spec.podCIDRs"],
      [() => find("new", "another"), `https://${ADDRESS}:${server.port} answers 401`],
      [() => find("new", undefined, {}), "KUBERNETES_SERVICE_HOST is not set"],
      [() => find("new", undefined, { ...env, KUBERNETES_SERVICE_PORT: "1" }), `https://${ADDRESS}:1 does not answer`],
    ] as const;
    for (const [found, problem] of refusals) {
      expect(await found().then(() => "", ({ message }) => message)).toEqual(failure(problem));
    }
    await expect(find("node-2")).rejects.toThrow("there is no such node");
    const elsewhere = findPodCidrs("node-1", env, "/nonexistent");
    await expect(elsewhere).rejects.toThrow('"/nonexistent" has no token or ca.crt');
  });

  testWith(PROGRAMS, "are not taken from a server with another certificate", async () => {
    const other = mkdtempSync(join(tmpdir(), "cni-account-"));
    using host = currentNetns();
    using impostor = serveApi(host, ADDRESS, "token-1", [], other);
    rmSync(other, { recursive: true });
    const found = find("node-1", undefined, { ...env, KUBERNETES_SERVICE_PORT: `${impostor.port}` });
    await expect(found).rejects.toThrow(`https://${ADDRESS}:${impostor.port} does not answer`);
  });
});
