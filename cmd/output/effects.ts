import { printable } from "../../spec/printable.ts";
import { type Effect, isLockFile } from "../../inspect/effects/effect.ts";
import { summarizeEffects } from "../../inspect/effects/summarize_effects.ts";
import type { Screen } from "./screen.ts";

const NO_EFFECT = "Nothing would be changed.\n";

export function formatEffectSummary(effects: readonly Effect[], screen: Screen): string {
  const lines = summarizeEffects(effects).map(({ sentence, action }) =>
    formatEffect(`would ${sentence}`, action, screen)
  );
  return lines.length === 0 ? NO_EFFECT : lines.map((line) => `${line}\n`).join("");
}

/** A line stands below the plugin that has the effect. */
export function formatEffects(all: readonly Effect[], screen: Screen): string {
  const effects = all.filter((effect) => !isLockFile(effect));
  if (effects.length === 0) return NO_EFFECT;
  const lines: string[] = [];
  let owner = "";
  for (let i = 0, count; i < effects.length; i += count) {
    const { plugin = "runtime", sentence, action } = effects[i]!;
    count = countEqual(effects, i);
    if (plugin !== owner) lines.push(screen.style("bold", plugin));
    owner = plugin;
    lines.push(formatEffect(`  would ${sentence}${count > 1 ? ` (${count} times)` : ""}`, action, screen));
  }
  return lines.map((line) => `${line}\n`).join("");
}

function formatEffect(line: string, action: Effect["action"], screen: Screen): string {
  const text = printable(line);
  return action === "remove" ? screen.style("red", text) : text;
}

/** Rules of one chain have equal sentences. */
function countEqual(effects: readonly Effect[], start: number): number {
  const { sentence, plugin } = effects[start]!;
  let end = start + 1;
  while (effects[end]?.sentence === sentence && effects[end]?.plugin === plugin) end++;
  return end - start;
}
