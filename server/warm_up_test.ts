import { expect, test } from "bun:test";
import { join } from "node:path";
import { LATEST } from "../spec/version.ts";

const from = (path: string) => `from "${join(import.meta.dir, path)}"`;
/** Plugins answer as in a worker, in a process of its own: it enters other namespaces. */
const program = (kind: string) => `
import { readAll, writeAll } ${from("../ffi/sys/file.ts")};
import { findPlugin, loadPlugins } ${from("../plugins/registry.ts")};
import { serve } ${from("../plugins/lib/protocol/serve.ts")};
import { createHostContext } ${from("../runtime/host_context.ts")};
import { takeCall } ${from("call.ts")};
import { namespacesOf } ${from("caller.ts")};
import { warmUp } ${from("warm_up.ts")};
await loadPlugins();
const calls = [];
await warmUp("${kind}", async (connection) => {
  const call = takeCall(connection, namespacesOf("self"));
  const { programName: program, env, descriptors } = call;
  const stdin = new TextDecoder().decode(readAll(descriptors.stdin));
  const command = env.CNI_COMMAND;
  const context = createHostContext({ log: () => {} });
  using _ = context.host;
  const plugin = findPlugin(program);
  const { stdout } = plugin && command !== "VERSION" ? serve(plugin, { command, env, stdin }, context) : { stdout: "{}" };
  calls.push({ program, command, cniVersion: JSON.parse(stdin).cniVersion, error: JSON.parse(stdout || "{}").msg });
  writeAll(descriptors.stderr, new TextEncoder().encode("a warning\\n"));
  writeAll(descriptors.stdout, new TextEncoder().encode(stdout));
  call.end(0);
  call[Symbol.dispose]();
});
console.log(JSON.stringify(calls));`;

interface Call {
  readonly program: string;
  readonly command?: string;
  readonly cniVersion: string;
  readonly error?: string;
}

test.each([
  ["containers", ["ADD", "DEL", "VERSION", "STATUS", undefined]],
  ["pods", ["ADD", "DEL", "VERSION", "STATUS"]],
])(
  "a worker warms up for %s with calls that succeed, in a version that has them, whatever these warn of",
  (kind, all) => {
    const { stdout, stderr } = Bun.spawnSync([process.execPath, "-e", program(kind)]);
    expect(stderr.toString()).toBe("");
    const calls: Call[] = JSON.parse(stdout.toString());
    expect(new Set(calls.map(({ command }) => command))).toEqual(new Set(all));
    expect(calls.filter(({ error }) => error !== undefined)).toEqual([]);
    const ofStatus = calls.filter(({ command }) => command === "STATUS");
    expect(new Set(ofStatus.map(({ cniVersion }) => cniVersion))).toEqual(new Set([LATEST]));
  },
);
