import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { checkResolverIn } from "./checks/resolver.ts";

beforeAll(() => loadPlugins());
const etc = mkdtempSync(join(tmpdir(), "cni-resolver-"));
afterAll(() => rmSync(etc, { recursive: true }));

test("resolvers that programs in a named namespace do not reach, with the command that mends it", () => {
  using doctorHost = newDoctorHost();
  const upstream = join(etc, "upstream/resolv.conf");
  const check = () =>
    doctorHost.withSubject((subject) => {
      const { attachment, ...others } = subject.containers[0]!;
      const container = { ...others, attachment: { ...attachment, netns: "/run/netns/it's" } };
      return checkResolverIn({ ...subject, containers: [container] }, { etc, upstream });
    });
  const paste = (command: string) => doctorHost.shell(command.replace("ADDRESS", "192.0.2.53"));
  expect(check()).toEqual([]);
  writeFileSync(join(etc, "resolv.conf"), "nameserver 127.0.0.53\noptions edns0\n");
  const [finding] = check();
  expect(finding).toMatchObject({
    severity: "warning",
    what: `${etc}/resolv.conf names 127.0.0.53, which programs in /run/netns/it's do not reach`,
  });
  expect(finding!.mend).toBeUndefined();
  paste(finding!.advice!.replace("put a name server instead of ADDRESS: ", ""));
  expect(readFileSync(join(etc, "netns/it's/resolv.conf"), "utf8")).toBe("nameserver 192.0.2.53\n");
  expect(check()).toEqual([]);
  rmSync(join(etc, "netns"), { recursive: true });
  mkdirSync(join(etc, "upstream"));
  writeFileSync(upstream, "nameserver 192.0.2.54\n");
  paste(check()[0]!.mend!);
  expect(readFileSync(join(etc, "netns/it's/resolv.conf"), "utf8")).toBe("nameserver 192.0.2.54\n");
  writeFileSync(join(etc, "resolv.conf"), "nameserver 127.0.0.53\nnameserver 192.0.2.53\n");
  rmSync(join(etc, "netns"), { recursive: true });
  expect(check()).toEqual([]);
});
