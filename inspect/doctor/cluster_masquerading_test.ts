/** A network of a cluster, whose plugin masquerades too. */
import { beforeAll, expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { checkMasquerading } from "./checks/cluster.ts";

beforeAll(() => loadPlugins());

const BRIDGE = { type: "bridge", bridge: "br9", isGateway: true };
const ROUTES = { direct: 1, tunnel: 1 };

test("a plugin that masquerades is named where the cluster masquerades, and not where somebody else routes", () => {
  using host = newDoctorHost({ main: { ...BRIDGE, ipMasq: true } });
  expect(host.withSubject((subject) => checkMasquerading(subject, {}))).toEqual([]);
  const [finding, ...others] = host.withSubject((subject) => checkMasquerading(subject, { routes: ROUTES }));
  expect(others).toEqual([]);
  expect(finding).toMatchObject({
    severity: "warning",
    what: '"ipMasq" of plugin "bridge" hides pods from pods of other nodes, and from their policies: ' +
      "they see this node's address",
    advice: expect.stringContaining("leave it out of the network that the cluster gives to its nodes"),
  });
});

test.each([false, undefined])("a network without it, as %p, has no such finding", (ipMasq) => {
  using host = newDoctorHost({ main: { ...BRIDGE, ipMasq } });
  expect(host.withSubject((subject) => checkMasquerading(subject, { routes: ROUTES }))).toEqual([]);
});
