// The name of a hibernated kernel in the Running panel, with the button that resumes it.
import * as React from 'react';

/** The name and the button. */
export function RestingLabel(props: {
  name: string;
  action: string;
  title: string;
  resume: () => void;
}): React.JSX.Element {
  return (
    <span className="jp-replkernel-resting">
      <span className="jp-replkernel-part">{props.name}</span>
      <button
        type="button"
        className="jp-Button jp-mod-styled jp-mod-minimal"
        title={props.title}
        onClick={event => {
          event.stopPropagation();
          props.resume();
        }}
      >
        {props.action}
      </button>
    </span>
  );
}
