import { expect, test } from "bun:test";
import { plugin, schema } from "../../mod.ts";
import { UsageError } from "../../program/usage_error.ts";
import { describePlugin, runService } from "./plugin.ts";

const definition = {
  name: "lease",
  about: "Gives addresses for a time",
  config: schema.object({}),
  add: () => ({}),
  del: () => {},
  check: () => {},
};

test("the service of a plugin is described and runs until it ends, in the environment of the command", async () => {
  const events: string[] = [];
  const lease = plugin({
    ...definition,
    service: {
      summary: "renews leases",
      run: async ({ env }) => {
        events.push(`begins in ${env.LEASES}`);
        await Bun.sleep(1);
        events.push("ends");
      },
    },
  });
  expect(describePlugin(lease)).toBe("Gives addresses for a time; service: renews leases");
  await runService(lease, { env: { LEASES: "/run/leases" } });
  expect(events).toEqual(["begins in /run/leases", "ends"]);
});

test("a plugin without a service is described by what it does, and has nothing to run", async () => {
  expect(describePlugin(plugin(definition))).toBe(definition.about);
  await expect(runService(plugin(definition), { env: {} })).rejects.toThrow(
    new UsageError('plugin "lease" has no service'),
  );
});
