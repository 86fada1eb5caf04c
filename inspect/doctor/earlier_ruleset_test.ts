/** Rules of an earlier release are no damage: CHECK and STATUS accept them too. */
import { beforeAll, expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { checkRuleset } from "./checks/ruleset.ts";

beforeAll(() => loadPlugins());

const RECORDED = new URL("../../testdata/rulesets/cni-loopback-output.nft", import.meta.url).pathname;

test("rules of an earlier release are a warning, and a restore upgrades them", () => {
  using host = newDoctorHost({ main: { type: "bridge", bridge: "br9", isGateway: true } });
  host.shell(`nft delete table inet cni; nft -f ${RECORDED}`);
  const { log } = host;
  expect(host.withSubject(checkRuleset)).toEqual([{
    severity: "warning",
    what: 'table "inet cni" has the rules of an earlier release, which the next ADD upgrades',
    mend: "cni run restore web",
    repair: { kind: "restore", network: "web" },
  }]);
  host.fix();
  expect(log).toContain('Upgraded table "inet cni", which had the rules of an earlier release');
  expect(log.filter((line) => line.startsWith("Restored chain"))).toEqual([]);
  expect(host.withSubject(checkRuleset)).toEqual([{ severity: "ok", what: 'table "inet cni" is whole' }]);
});
