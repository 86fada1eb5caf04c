/** What cannot be used is one clear error, and nothing is done; what is left of an attachment can be removed all the same. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ProgramCall } from "../plugins/lib/protocol/exec.ts";
import { useDirectory } from "../testing/directory.ts";
import { newRuntimeContext } from "../testing/plugin_call.ts";
import { CniError, ConfigError } from "../spec/error.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { listCacheEntries } from "./cache.ts";
import { deriveRequests } from "./derive.ts";
import { addNetworkList, type AddRuntimeConf } from "./add.ts";
import { checkNetworkList } from "./check.ts";
import { delNetworkList } from "./del.ts";
import { placesIn, replaceAt } from "../testing/fuzz_documents.ts";

const root = useDirectory("cni-bad-");

const calls: (ProgramCall & { readonly type: string })[] = [];
const directory = join(root, "cache");
const runtime = newRuntimeContext({
  programs(type, call) {
    calls.push({ type, ...call });
    return { exitCode: 0, stdout: call.command === "ADD" ? "{}" : "" };
  },
  pluginDirectories: ["/bin"],
  cacheDirectory: directory,
});

/** What happened, from a clean start. */
function attempt(call: () => void): { error?: unknown; calls: readonly ProgramCall[] } {
  rmSync(directory, { recursive: true, force: true });
  calls.splice(0);
  try {
    call();
    return { calls: [...calls] };
  } catch (error) {
    return { error, calls: [...calls] };
  }
}

function isClear(error: unknown): error is Error {
  return [CniError, ConfigError, SyntaxError].some((kind) => error instanceof kind) &&
    (error as Error).message.length < 400 && CniError.from(error).code !== 999;
}

const where: AddRuntimeConf = { containerId: "c1", ifname: "eth0", netns: "/run/netns/x" };
const config = {
  cniVersion: "1.0.0",
  cniVersions: ["0.4.0", "1.1.0"],
  name: "web",
  disableCheck: false,
  disableGC: "false",
  loadOnlyInlinedPlugins: true,
  plugins: [
    {
      type: "a",
      capabilities: { ips: true, mac: false },
      ipam: { type: "b", ranges: [[{ subnet: "10.1.0.0/16" }]] },
      dns: { nameservers: ["10.1.0.1"], domain: "x", search: ["y"], options: ["z"] },
      args: { cni: { labels: [] } },
    },
    { type: "c", runtimeConfig: { x: 1 }, prevResult: {}, "cni.dev/attachments": [{ containerID: "c", ifname: "i" }] },
  ],
};
const entry = {
  kind: "cniCacheV1",
  containerId: "c1",
  config: btoa(JSON.stringify(config)),
  ifName: "eth0",
  networkName: "web",
  netns: "/run/netns/x",
  cniArgs: [["K", "V"]],
  capabilityArgs: { ips: ["10.1.0.5"] },
  result: { cniVersion: "1.1.0", interfaces: [{ name: "eth0", sandbox: "/x" }], ips: [{ address: "10.1.0.5/16" }] },
};

const strange = fc.oneof(
  fc.constantFrom<unknown>(null, true, 0, -1, 1e300, "", "\0", "..", "../x", "a/b", "\u{10000}", [], [null], {}, {
    "": null,
  }),
  fc.constantFrom<unknown>("x".repeat(5000), Array(2000).fill({ type: "x" }), Array(3000).fill(null)),
  fc.jsonValue(),
);
const mutation = (document: object) =>
  fc.array(fc.tuple(fc.constantFrom(...placesIn(document)), strange), { minLength: 1, maxLength: 3 }).map((changes) =>
    changes.reduce<unknown>((node, [path, value]) => replaceAt(node, path, value), document)
  );

test("add() of any configuration calls plugins with a proper request, or fails clearly and does nothing", () => {
  fc.assert(
    fc.property(mutation(config), fc.dictionary(fc.string(), fc.jsonValue()), (document, capabilityArgs) => {
      const { error, calls } = attempt(() =>
        void addNetworkList(runtime, parseNetworkConfigList(JSON.stringify(document) ?? "", "x.conflist"), {
          ...where,
          capabilityArgs,
        })
      );
      if (error !== undefined) {
        expect([isClear(error), calls, existsSync(directory)]).toEqual([true, [], false]);
        return;
      }
      expect(calls.length).toBeGreaterThan(0);
      for (const { stdin } of calls) {
        expect(JSON.parse(stdin)).toMatchObject({
          name: expect.stringMatching(/^[a-zA-Z0-9][\w.-]*$/),
          type: expect.stringMatching(/^[^/\\\0]+$/),
          cniVersion: expect.stringMatching(/^[01]\.[0-4]\.[01]$/),
        });
      }
    }),
    { numRuns: 500, examples: [[{ name: "web" }, {}]] },
  );
});

test("add() with any parameters passes just these on, or fails clearly and does nothing", () => {
  const list = parseNetworkConfigList(JSON.stringify(config));
  const text = fc.oneof(
    fc.constantFrom("", ".", "..", "/", "\0", "a\0b", "a b", "a;b", "a=b", "\u0085", "%d", "-x", "é", "x".repeat(300)),
    fc.stringMatching(/^[a-z0-9]{1,15}$/),
    fc.string({ unit: "binary", maxLength: 20 }),
  );
  fc.assert(
    fc.property(
      text,
      text,
      text,
      fc.array(fc.tuple(text, text), { maxLength: 2 }),
      (containerId, ifname, netns, args) => {
        const { error, calls } = attempt(() =>
          void addNetworkList(runtime, list, { containerId, ifname, netns, args })
        );
        if (error !== undefined) {
          expect([error instanceof CniError && error.code, calls, existsSync(directory)]).toEqual([4, [], false]);
          return;
        }
        const CNI_ARGS = args.map((pair) => pair.join("=")).join(";");
        const passed = { CNI_CONTAINERID: containerId, CNI_IFNAME: ifname, CNI_NETNS: netns, CNI_ARGS };
        for (const { env } of calls) {
          expect(env).toMatchObject(passed);
          expect(Object.values(env).join("")).not.toContain("\0");
        }
      },
    ),
    { numRuns: 1000 },
  );
});

const file = join(directory, "results/web-c1-eth0");

/** Lets the cache hold this, whatever it is. */
function plant(text: string | Uint8Array): void {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(join(directory, "results"), { recursive: true });
  writeFileSync(file, text);
  calls.splice(0);
}

const content = fc.oneof(
  mutation(entry).map((node) => JSON.stringify(node) ?? ""),
  mutation(entry).map((node) => (JSON.stringify(node) ?? "").slice(0, -20)),
  mutation(config).map((node) =>
    JSON.stringify({ ...entry, config: Buffer.from(JSON.stringify(node) ?? "").toString("base64") })
  ),
  fc.string({ unit: "binary" }),
  fc.uint8Array({ maxLength: 50 }),
);

test("del() removes whatever the cache holds", () => {
  const now = parseNetworkConfigList(JSON.stringify({ ...config, plugins: [{ type: "now" }] }));
  fc.assert(
    fc.property(content, (text) => {
      plant(text);
      delNetworkList(runtime, now, where);
      expect(calls.length).toBeGreaterThan(0);
      for (const { command, env } of calls) {
        expect([command, env.CNI_CONTAINERID, env.CNI_IFNAME]).toEqual(["DEL", "c1", "eth0"]);
        expect(Object.values(env).join("")).not.toContain("\0");
      }
      // A file that names another attachment is that one's.
      expect(existsSync(file) && listCacheEntries(directory).length === 0 && !text.toString().includes("cniCacheV1"))
        .toBe(
          false,
        );
    }),
    { numRuns: 500 },
  );
});

test("check() of whatever the cache holds asks the plugins with a result, or fails clearly and asks nobody", () => {
  const now = parseNetworkConfigList(JSON.stringify(config));
  fc.assert(
    fc.property(content, (text) => {
      plant(text);
      try {
        checkNetworkList(runtime, now, where);
      } catch (error) {
        expect([isClear(error), calls]).toEqual([true, []]);
      }
      for (const { stdin } of calls) expect(JSON.parse(stdin)).toHaveProperty("prevResult");
    }),
    { numRuns: 500 },
  );
});

test("listCacheEntries() and deriveRequests() take whatever the cache holds", () => {
  const now = parseNetworkConfigList(JSON.stringify(config));
  fc.assert(
    fc.property(content, (text) => {
      plant(text);
      expect(listCacheEntries(directory).length).toBeLessThan(2);
      for (const { request } of deriveRequests(runtime, now, { verb: "DEL", parameters: where })) JSON.parse(request);
      expect(calls).toEqual([]);
    }),
    { numRuns: 300 },
  );
});
