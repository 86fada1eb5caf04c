import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { netnsTest } from "./ffi/testing.ts";
import {
  embedded,
  executables,
  loadNetwork,
  type Netns,
  openNetns,
  parseCidr,
  plugin,
  type Result,
  runtime,
  schema,
  serve,
  type Surroundings,
} from "./mod.ts";

// The first example in the documentation of mod.ts.
const greet = plugin({
  name: "greet",
  about: "Says hello and changes nothing",
  config: schema.object({ greeting: schema.withDefault(schema.string, "hello") }),
  add: ({ config, log, prevResult }) => {
    log(config.greeting);
    return prevResult ?? {};
  },
  del: () => {},
  check: () => {},
});

// The second one, for its types: it would work on this machine itself.
void function () {
  const pluginDirectories = ["/opt/cni/bin"];
  const log = console.error;
  const network = loadNetwork("web", { directory: "/etc/cni/net.d", readInput: () => "", log });
  const result = runtime.add(
    {
      invoker: executables(pluginDirectories),
      pluginDirectories,
      cacheDirectory: "/var/lib/cni",
      env: process.env,
      log,
    },
    network,
    { containerId: "c1", ifname: "eth0", netns: "/run/netns/c1" },
  );
  console.log(result.ips);
};

test("the examples in the documentation of mod.ts are those of this test", () => {
  const documentation = readFileSync(`${import.meta.dir}/mod.ts`, "utf8").replaceAll(/^ \* ?/gm, "");
  const examples = [...documentation.matchAll(/^```ts\nimport [^\n]*\n\n(.*?)^```$/gms)].map(([, code]) => code);
  const flat = (code: string) => code.replace("export default", "const greet =").replaceAll(/\s+/g, " ").trim();
  const tested = flat(readFileSync(import.meta.path, "utf8"));
  expect(examples.length).toBe(2);
  for (const example of examples) expect(tested).toContain(flat(example));
});

const ADDRESS = "10.1.0.2/16";

netnsTest(
  "serve() gives the plugin of the example's result in the version that was asked for",
  ({ host, container }) => {
    const log: string[] = [];
    const around = surroundings(host, log);
    const inVersion = {
      "0.2.0": { cniVersion: "0.2.0", ip4: { ip: ADDRESS }, dns: {} },
      "0.4.0": { cniVersion: "0.4.0", ips: [{ version: "4", address: ADDRESS }], dns: {} },
      "1.1.0": { cniVersion: "1.1.0", ips: [{ address: ADDRESS }] },
    };
    for (const [cniVersion, expected] of Object.entries(inVersion)) {
      for (const prevResult of Object.values(inVersion)) {
        const stdin = JSON.stringify({
          cniVersion,
          name: "web",
          type: "greet",
          greeting: `hi from ${cniVersion}`,
          prevResult,
        });
        const env = { CNI_CONTAINERID: "c1", CNI_IFNAME: "eth0", CNI_NETNS: container.path };
        const { exitCode, stdout } = serve(greet, { command: "ADD", env, stdin }, around);
        expect(JSON.parse(stdout)).toEqual(expected);
        expect(exitCode).toBe(0);
        expect(log.pop()).toBe(`hi from ${cniVersion}`);
      }
    }
  },
);

netnsTest("serve() of the example's plugin names what is wrong with its configuration", ({ host, container }) => {
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "web", type: "greet", greeting: 1 });
  const env = { CNI_CONTAINERID: "c1", CNI_IFNAME: "eth0", CNI_NETNS: container.path };
  const { exitCode, stdout } = serve(greet, { command: "ADD", env, stdin }, surroundings(host, []));
  expect(JSON.parse(stdout)).toEqual({
    cniVersion: "1.1.0",
    code: 7,
    msg: 'Cannot use network "web": greeting must be a string: got 1',
  });
  expect(exitCode).toBe(1);
});

netnsTest("a program runs a network of plugins of its own", ({ host, container }) => {
  using resources = new DisposableStack();
  const directory = mkdtempSync(`${tmpdir()}/cni-test-`);
  resources.defer(() => rmSync(directory, { recursive: true }));
  const given: Result = { ips: [{ address: parseCidr(ADDRESS) }] };
  const give = plugin({ ...greet, name: "give", add: () => given });
  writeFileSync(
    `${directory}/web.conflist`,
    '{ "cniVersion": "1.0.0", "name": "web", "plugins": [{ "type": "give" }, { "type": "greet" }] } // with a comment',
  );
  const log: string[] = [];
  const around = surroundings(host, log, [give, greet]);
  const options: runtime.RuntimeOptions = {
    invoker: around.invoker([]),
    pluginDirectories: [],
    cacheDirectory: directory,
    env: {},
    log: around.log,
  };
  const network = loadNetwork("web", { directory, readInput: () => "", log: around.log });
  const attachment = { containerId: "c1", ifname: "eth0" };
  expect(runtime.add(options, network, { ...attachment, netns: container.path })).toEqual(given);
  expect(log).toEqual(["hello"]);
  runtime.check(options, network, attachment);
  runtime.del(options, network, attachment);
  expect(() => runtime.check(options, network, attachment)).toThrow("no result of an ADD is known");
});

function surroundings(host: Netns, log: string[], plugins = [greet]): Surroundings {
  const around: Surroundings = {
    host,
    openNetns,
    invoker: () => embedded((type) => plugins.find(({ name }) => name === type), around),
    log: (message) => void log.push(message),
  };
  return around;
}
