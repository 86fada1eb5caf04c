/**
 * What one side, the reference plugin or ours, has added is checked and removed by the other.
 *
 * @module
 */
import { expect } from "bun:test";
import { runInNetns, runIp } from "./netns.ts";
import { newComparisonHost, ourPlugins, type PluginSet, referencePlugins } from "./reference_host.ts";
import { leftBehind } from "./reference_requests.ts";

/** Who begins, and who goes on. */
export const BOTH_ORDERS: readonly (readonly [first: PluginSet, second: PluginSet])[] = [
  [referencePlugins, ourPlugins],
  [ourPlugins, referencePlugins],
];

/** A change of the container's network that CHECK should notice. */
export interface Drift {
  readonly place: "host" | "container";
  /** Arguments of ip(8), with `$PORT` for the host's end of the cable. */
  readonly change: string;
  /** The same, which put it right again, with `$MAC` for the container's address. */
  readonly back: string;
  readonly isMissedByThem?: boolean;
}

/** An attachment that both sides make alike. */
export interface SharedAttachment {
  readonly type: string;
  readonly config: object;
  /** What both leave behind, as {@linkcode leftBehind} has it. */
  readonly left: ReturnType<typeof leftBehind>;
}

/** Tests that each side checks and removes what the other has added, and notices these changes. */
export function testCheckAndRemoval(
  define: (name: string, body: () => void) => void,
  { type, config: added, left }: SharedAttachment,
  drifts: readonly Drift[],
): void {
  for (const [first, second] of BOTH_ORDERS) {
    for (const cniVersion of ["0.4.0", "1.0.0"]) {
      define(`${second.name} checks and removes what ${first.name} added, version ${cniVersion}`, () => {
        using world = newComparisonHost();
        const prevResult = world.call(first, "ADD", { cniVersion, ...added }, { type });
        const config = { cniVersion, ...added, prevResult };
        const [{ name: port }, { mac }] = prevResult.interfaces.slice(-2);
        const put = (place: Drift["place"], command: string) =>
          runIp(world[place], command.replace("$PORT", port).replace("$MAC", mac));
        world.call(second, "CHECK", config, { type });
        for (const { place, change, back, isMissedByThem = false } of drifts) {
          put(place, change);
          const isMissed = world.tryCall(second, "CHECK", config, { type }).succeeded;
          expect([change, isMissed]).toEqual([change, second === referencePlugins && isMissedByThem]);
          put(place, back);
        }
        world.call(second, "CHECK", config, { type });
        world.call(second, "DEL", config, { type });
        expect(leftBehind(world)).toEqual(left);
        world.call(second, "DEL", config, { type });
        expect(world.tryCall(second, "CHECK", config, { type }).succeeded).toBe(false);
      });
    }
  }
}

/** Tests that we remove what the reference has added from a container whose namespace nobody can name. */
export function testRemovalWithoutNetns(
  define: (name: string, body: () => void) => void,
  { type, config, left }: SharedAttachment,
): void {
  for (const CNI_NETNS of [null, "", "/nonexistent/x"]) {
    define(
      `we remove what the reference added, rules and all, even if CNI_NETNS is ${JSON.stringify(CNI_NETNS)}`,
      () => {
        using world = newComparisonHost();
        const prevResult = world.call(referencePlugins, "ADD", config, { type });
        world.call(ourPlugins, "DEL", { ...config, prevResult }, { type, env: { CNI_NETNS } });
        expect(leftBehind(world)).toEqual(left);
        expect(runInNetns(world.host, "iptables-save")).not.toContain("CNI-");
      },
    );
  }
}
