import { type LabelSelector, selects } from "./label_selector.ts";
import type { Labels } from "./labels.ts";

/** What has a selector, found by the labels that it selects. */
export class SelectorIndex<T extends { readonly selector: LabelSelector }> {
  /** By `key=value` of one requirement. */
  readonly #byLabel = new Map<string, Set<T>>();
  /** Those that need no such label. */
  readonly #others = new Set<T>();

  add(item: T): void {
    const labels = requiredLabels(item.selector);
    if (!labels) this.#others.add(item);
    for (const label of labels ?? []) addTo(this.#byLabel, label, item);
  }

  delete(item: T): void {
    this.#others.delete(item);
    for (const label of requiredLabels(item.selector) ?? []) deleteFrom(this.#byLabel, label, item);
  }

  get isEmpty(): boolean {
    return this.#byLabel.size === 0 && this.#others.size === 0;
  }

  *all(): Generator<T> {
    yield* new Set([...this.#others, ...this.#byLabel.values().flatMap((items) => items)]);
  }

  *selecting(labels: Labels): Generator<T> {
    for (const item of this.#candidates(labels)) if (selects(item.selector, labels)) yield item;
  }

  *#candidates(labels: Labels): Generator<T> {
    yield* this.#others;
    if (this.#byLabel.size === 0) return;
    for (const label of labelTexts(labels)) yield* this.#byLabel.get(label) ?? [];
  }
}

/** Labels of which a selected object has exactly one, as {@linkcode labelTexts}; `undefined` if it needs none. */
export function requiredLabels({ requirements }: LabelSelector): string[] | undefined {
  const [shortest] = requirements.flatMap((each) => each.operator === "In" && each.values.length > 0 ? [each] : [])
    .sort((a, b) => a.values.length - b.values.length);
  return shortest?.values.map((value) => labelText(shortest.key, value));
}

const labelText = (key: string, value: string): string => `${key}=${value}`;
export const labelTexts = (labels: Labels): string[] => [...labels].map(([key, value]) => labelText(key, value));

export function addTo<K, V>(sets: Map<K, Set<V>>, key: K, value: V): void {
  const set = sets.get(key);
  if (set) set.add(value);
  else sets.set(key, new Set([value]));
}

export function deleteFrom<K, V>(sets: Map<K, Set<V>>, key: K, value: V): void {
  const set = sets.get(key);
  if (set?.delete(value) && set.size === 0) sets.delete(key);
}
