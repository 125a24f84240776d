// SPDX-License-Identifier: Apache-2.0

package hardware

import "context"

// Power is a host's management controller (a BMC that speaks Redfish), as
// another machine reaches it: it works, or not, whatever the host does.
//
// Controllers accept an order before it is done, show the state they were told
// to reach as if it were reached, fall silent, refuse, and answer for the wrong
// machine. One answer is therefore proof of nothing: the caller asks who is
// there, orders, and reads the state again and again.
type Power interface {
	// Controller says whose controller answers.
	Controller(ctx context.Context) (Controller, error)

	// PowerState reads the machine's power.
	PowerState(ctx context.Context) (PowerState, error)

	// SetPower orders the machine on, or off at once as pulling the plug does
	// (Redfish ForceOff). It returns when the order was accepted. That nobody
	// answered is Unknown: the order may have been taken.
	SetPower(ctx context.Context, on bool) error
}

// Controller identifies the machine behind a management controller.
type Controller struct {
	SystemUUID string // Redfish ComputerSystem.UUID, as DMI product_uuid; lower case, may be empty
	Serial     string // Redfish ComputerSystem.SerialNumber, as DMI product_serial; may be empty
}

// PowerState is Redfish's ComputerSystem.PowerState (DMTF DSP0268).
type PowerState string

// The power states. Anything else a controller says is none of them.
const (
	PowerOn          PowerState = "On"
	PowerOff         PowerState = "Off"
	PowerPoweringOn  PowerState = "PoweringOn"
	PowerPoweringOff PowerState = "PoweringOff"
	PowerUnknown     PowerState = "Unknown"
)
