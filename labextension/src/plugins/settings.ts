// The settings, for all parts that follow them. Their schema is `schema/settings.json`.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { PartialJSONObject } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';

import type { IPreferences } from '../models/prefs';
import { DEFAULTS, readPreferences } from '../models/prefs';
import { ISettings } from '../tokens';

const ID = '@replkernel/labextension:settings';

const SHOWN = ['title', 'description', 'jupyter.lab.setting-icon-label'];

/** Write the names of settings in the page's language: the server knows language packs, but no package's own catalogue. */
function translate(schema: PartialJSONObject, trans: TranslationBundle, context = 'schema'): void {
  for (const [key, value] of Object.entries(schema)) {
    if (typeof value === 'string' && SHOWN.includes(key)) {
      schema[key] = trans._p(key.startsWith('jupyter.') ? 'settings' : context, value);
    } else if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      translate(value, trans, 'settings');
    }
  }
}

class Settings implements ISettings {
  value: IPreferences = DEFAULTS;
  readonly changed: Signal<ISettings, void> = new Signal<ISettings, void>(this);

  constructor(registry: ISettingRegistry | null, trans: TranslationBundle) {
    registry?.load(ID).then(
      found => {
        const read = (): void => {
          translate(found.schema, trans);
          this.value = readPreferences(found.composite);
          this.changed.emit();
        };
        found.changed.connect(read);
        read();
      },
      (error: unknown) => {
        console.warn('The settings of replicated kernels cannot be read; their defaults hold.', error);
      }
    );
  }
}

/** Provides the settings. */
export const settingsPlugin: JupyterFrontEndPlugin<ISettings> = {
  id: ID,
  description: 'What is shown of replicated kernels, as a person has set it.',
  autoStart: true,
  provides: ISettings,
  optional: [ISettingRegistry, ITranslator],
  activate: (_: JupyterFrontEnd, registry: ISettingRegistry | null, translator: ITranslator | null) =>
    new Settings(registry, (translator ?? nullTranslator).load('replkernel'))
};
