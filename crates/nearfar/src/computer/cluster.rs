//! Borrowings between hosts.

use std::rc::Rc;

use lending::Service;
use platform::Error;
use platform::cpu::Async;
use virt::{VfioDevice, Vm};
use wire::pcie::{Bdf, FunctionAddress};

use super::computers::Computers;
use super::error::ComputerError;
use super::lending::Borrow;
use super::passed::help_with_group;

impl Computers {
    /// Borrowings between the hosts.
    pub fn cluster(&self) -> Cluster<'_> {
        Cluster(self)
    }
}

/// The borrowings of computers.
#[derive(Clone, Copy)]
pub struct Cluster<'a>(pub(super) &'a Computers);

impl Cluster<'_> {
    /// Starts the initial borrowings selected by `is_asked`.
    pub(super) fn start_borrowings(self, is_asked: impl Fn(&Borrow) -> bool) -> Result<(), ComputerError> {
        let all = self.0.borrows.iter().enumerate();
        for (n, borrow) in all.filter(|(_, borrow)| borrow.at_once && is_asked(borrow)) {
            let borrowed = self.0.simulation.block_on(self.borrow(n))?;
            borrowed.map_err(|problem| self.not_borrowed(borrow, problem))?;
        }
        Ok(())
    }

    /// Why an initial borrowing has failed.
    fn not_borrowed(self, borrow: &Borrow, problem: Error) -> ComputerError {
        let (host, what) = (self.0.hosts[borrow.by].name.clone(), borrow.name.value.clone());
        let functions = self.0.simulation.with(|fabric, _| borrow.function.functions(fabric));
        let help = functions.first().filter(|_| problem == Error::Busy).and_then(|&bdf| {
            let at = FunctionAddress { bdf, ..FunctionAddress::default() };
            help_with_group(&self.0.hosts[borrow.lender].kernel, at, "borrower")
        });
        match help {
            Some(_) => borrow.name.complaint(format!("{host} cannot borrow {what}: {problem}"), help).into(),
            None => ComputerError::Lending { host, what, problem },
        }
    }

    /// The borrower's service, and the function's address at the lender.
    fn parties(self, number: usize) -> Result<(Rc<Service>, u8, Bdf), Error> {
        let Borrow { by, node, function, .. } = self.0.borrows[number];
        let service = self.0.hosts[by].software.lending.as_ref().and_then(|own| own.service.borrow().clone());
        let all = self.0.simulation.with(|fabric, _| function.functions(fabric));
        Ok((service.ok_or(Error::NoDevice)?, node, *all.first().ok_or(Error::NoDevice)?))
    }

    /// The virtual machine of a borrowing, if it is for one.
    fn borrowing_vm(self, number: usize) -> Option<Result<Rc<Vm>, Error>> {
        let Borrow { by, vm, .. } = &self.0.borrows[number];
        vm.map(|vm| self.0.hosts[*by].vms().get(vm).cloned().ok_or(Error::NoDevice))
    }

    /// Unbinds the function from the lender's own driver, if bound.
    fn let_go(self, number: usize) -> Async<'static, Result<(), Error>> {
        let Borrow { lender, function, .. } = self.0.borrows[number];
        let host = &self.0.hosts[lender];
        let used = host
            .software
            .lending
            .as_ref()
            .map(|own| own.used.borrow_mut().extract_if(.., |own| *own == function).count());
        if used.is_none_or(|used| used == 0) {
            return Box::pin(async { Ok(()) });
        }
        let functions = self.0.simulation.with(|fabric, _| function.functions(fabric));
        let own = |bdf| FunctionAddress { bdf, ..FunctionAddress::default() };
        let freed: Vec<_> = functions.into_iter().map(|at| host.kernel.rebind(own(at))).collect();
        Box::pin(async move {
            for freed in freed {
                freed.wait().await?;
            }
            Ok(())
        })
    }

    /// Starts the scenario's `number`th borrowing at once. Resolves when drivers have been offered the function, or
    /// the guest has been notified.
    ///
    /// # Errors
    /// As the lender and the borrower report them.
    pub fn borrow(self, number: usize) -> Async<'static, Result<(), Error>> {
        let (freed, parties) = (self.let_go(number), self.parties(number));
        match self.borrowing_vm(number) {
            None => Box::pin(async move {
                freed.await?;
                let (service, node, function) = parties?;
                service.borrow(node, function).await.map(drop)
            }),
            Some(vm) => {
                let slot = Rc::clone(&self.0.borrows[number].slot);
                Box::pin(async move {
                    freed.await?;
                    let ((service, node, function), vm) = (parties?, vm?);
                    let memory = Rc::clone(vm.memory());
                    let mediated = service.mediate(node, function, memory, vm.costs().eventfd).await?;
                    slot.set(Some(vm.add(Rc::clone(&mediated) as _).await?));
                    mediated.on_loss(Box::new(move || slot.set(None)));
                    Ok(())
                })
            }
        }
    }

    /// The lender ends a borrowing.
    pub(super) fn take_back(self, number: usize) -> Async<'static, Result<(), Error>> {
        let lending = self.0.hosts[self.0.borrows[number].lender].software.lending.as_ref();
        let lender = lending.and_then(|own| own.service.borrow().clone()).ok_or(Error::NoDevice);
        let parties = self.parties(number);
        Box::pin(async move {
            let (_, _, function) = parties?;
            lender?.take_back(function).await
        })
    }

    /// The borrower ends a borrowing.
    pub(super) fn give_back(self, number: usize) -> Async<'static, Result<(), Error>> {
        match self.borrowing_vm(number) {
            None => {
                let parties = self.parties(number);
                let asked = parties.map(|(service, node, function)| service.give_back(node, function));
                Box::pin(async move { asked?.await })
            }
            Some(vm) => {
                let slot = self.0.borrows[number].slot.take();
                Box::pin(async move { vm?.remove(slot.ok_or(Error::Invalid)?).await })
            }
        }
    }
}
